//! ChampSim's records.

use swath_trace::access::{AccessKind, Compression, TraceFormat, TraceItem};

use super::file::{items_in_pieces, open};

/// Reads records, and as well field by field.
pub fn run(bytes: &[u8]) {
    let format = Some(TraceFormat::ChampSim);
    let found = items_in_pieces(bytes, 9, format);
    let Ok(reader) = open(bytes, usize::MAX, format) else { return };
    if reader.compression() != Compression::None {
        return;
    }
    let (mut expected, mut is_whole) = (Vec::new(), bytes.len().is_multiple_of(64));
    for record in bytes.chunks_exact(64) {
        if record[8] > 1 || record[9] > 1 {
            is_whole = false;
            break;
        }
        let word = |at: usize| {
            record[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
        };
        expected.push((word(0), AccessKind::Fetch));
        let operands = (32..64).step_by(8).map(|at| (word(at), AccessKind::Read));
        let operands = operands.chain([16, 24].map(|at| (word(at), AccessKind::Write)));
        expected.extend(operands.filter(|&(addr, _)| addr != 0));
    }
    let accesses: Vec<_> = found.0.iter().map(access_of).collect();
    assert_eq!((accesses, found.1.is_none()), (expected, is_whole), "{:?}", found.1);
}

fn access_of(item: &TraceItem) -> (u64, AccessKind) {
    match item {
        TraceItem::Access(access) if access.len_bytes == 1 => (access.addr.raw(), access.kind),
        other => panic!("{other:?} in ChampSim's format"),
    }
}
