//! Recordings of a kernel's page events.

use swath_trace::pages::{PAGE_FORMAT, PageReader, PageWriter};

use super::file::{file, read_all};

/// Reads a recording; a whole one is written and read again.
pub fn run(bytes: &[u8]) {
    let bytes = file(&PAGE_FORMAT, bytes);
    let Ok(mut reader) = PageReader::new(&bytes[..]) else { return };
    let (events, None) = read_all(&mut reader) else { return };
    let mut writer = PageWriter::new(Vec::new(), reader.head(), 1).expect("a head as read");
    for &event in &events {
        writer.push(event).expect("an event as read");
    }
    let again = writer.finish(reader.lost()).expect("losses as read");
    let mut second = PageReader::new(&again[..]).expect("a file of our own");
    assert_eq!(second.head(), reader.head());
    assert_eq!(read_all(&mut second), (events, None));
    assert_eq!(second.lost(), reader.lost());
}
