//! Swath's own access traces.

use swath_trace::access::{TRACE_FORMAT, TraceFormat, TraceItem, TraceWriter};

use super::file::{file, items_in_pieces, open, read_all};

/// Reads a trace, in one piece and in small ones; a whole one is written and read again.
pub fn run(bytes: &[u8]) {
    let bytes = file(&TRACE_FORMAT, bytes);
    let format = Some(TraceFormat::Swath);
    let found = items_in_pieces(&bytes, 7, format);
    let (items, None) = found else { return };
    let mut reader = open(&bytes, usize::MAX, format).expect("it was opened before").items();
    let header = reader.header().cloned().unwrap_or_default();
    assert_eq!(read_all(&mut reader).1, None);
    let programs = reader.programs().cloned().unwrap_or_default();

    let mut writer = TraceWriter::with_header(Vec::new(), 1, &header).expect("a header as read");
    for item in &items {
        match *item {
            TraceItem::Access(access) => writer.push(access),
            TraceItem::Event(event) => writer.push_event(event),
        }
        .expect("an item as read");
    }
    let again = writer.finish_with(&programs).expect("programs as read");
    let mut reader = open(&again, usize::MAX, None).expect("a file of our own").items();
    assert_eq!(reader.header(), Some(&header));
    assert_eq!(read_all(&mut reader), (items, None));
    assert_eq!(reader.programs(), Some(&programs));
}
