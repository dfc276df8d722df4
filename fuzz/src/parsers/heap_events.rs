//! Recordings of a program's heap.

use swath_trace::heap::{HEAP_FORMAT, HeapReader, HeapSummary, HeapWriter};

use super::file::{file, read_all};

/// Reads a recording and sums it up; a whole one is written and read again.
pub fn run(bytes: &[u8]) {
    let bytes = file(&HEAP_FORMAT, bytes);
    let Ok(mut reader) = HeapReader::new(&bytes[..]) else { return };
    let (events, failure) = read_all(&mut reader);
    let mut second = HeapReader::new(&bytes[..]).expect("it was opened before");
    let summary = HeapSummary::of(&mut second);
    assert_eq!(summary.is_err(), failure.is_some(), "{failure:?}");
    let Ok(summary) = summary else { return };
    assert!(!summary.lines(reader.head()).is_empty());

    let totals = reader.totals().expect("the end was read");
    // Version 1 has none.
    let programs = &reader.programs().cloned().unwrap_or_default();
    let mut writer = HeapWriter::new(Vec::new(), reader.head(), 1).expect("a head as read");
    for &event in &events {
        writer.push(event).expect("an event as read");
    }
    let again = writer.finish_with(totals, programs).expect("totals as read");
    let mut second = HeapReader::new(&again[..]).expect("a file of our own");
    assert_eq!(second.head(), reader.head());
    assert_eq!(read_all(&mut second), (events, None));
    assert_eq!((second.totals(), second.programs()), (Some(totals), Some(programs)));
}
