//! Files from a fuzzer's bytes, and their items.

use std::fmt::Display;
use std::io::{Cursor, Read};

use swath_trace::access::{TraceError, TraceFormat, TraceItem, TraceReader};
use swath_trace::container::FileFormat;

/// Returns the file that the bytes stand for: after an even byte as they are; after an odd one as
/// the content below a right signature, of the version that the next byte names, and a right
/// checksum, which no change of bytes finds.
pub(super) fn file(format: &FileFormat, bytes: &[u8]) -> Vec<u8> {
    match bytes {
        [kind, version, content @ ..] if kind & 1 == 1 => {
            let versions = format.version - format.oldest + 1;
            let version = format.oldest + version % versions;
            let content = zstd::encode_all(content, 1).expect("memory is no file");
            [&format.magic[..], &[version], &content].concat()
        }
        [_, file @ ..] => file.to_vec(),
        [] => Vec::new(),
    }
}

/// Returns the items before an error or the end, and the error in words.
pub(super) fn read_all<T, E: Display>(
    reader: &mut impl Iterator<Item = Result<T, E>>,
) -> (Vec<T>, Option<String>) {
    let mut all = Vec::new();
    let mut failure = None;
    for item in &mut *reader {
        assert!(failure.is_none(), "something after {failure:?}");
        match item {
            Ok(item) => all.push(item),
            Err(error) => failure = Some(error.to_string()),
        }
    }
    assert!(reader.next().is_none(), "something after the end");
    (all, failure)
}

/// A source that gives so many bytes at a time, as a pipe may.
pub(super) struct Pieces {
    pub(super) bytes: Cursor<Vec<u8>>,
    pub(super) piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let len = to.len().min(self.piece);
        self.bytes.read(&mut to[..len])
    }
}

/// Opens a trace of any format, given in pieces.
pub(super) fn open(
    bytes: &[u8],
    piece: usize,
    format: Option<TraceFormat>,
) -> Result<TraceReader, TraceError> {
    let bytes = Cursor::new(bytes.to_vec());
    TraceReader::from_reader(Pieces { bytes, piece }, format)
}

/// Reads a trace of any format, given in pieces.
pub(super) fn items(
    bytes: &[u8],
    piece: usize,
    format: Option<TraceFormat>,
) -> (Vec<TraceItem>, Option<String>) {
    match open(bytes, piece, format) {
        Ok(reader) => read_all(&mut reader.items()),
        Err(error) => (Vec::new(), Some(error.to_string())),
    }
}

/// Returns the items of a file, after checking that it gives the same in pieces. What is wrong in compressed data, also
/// that they are cut short, a decompressor finds earlier or later, and hands out more or less before it.
pub(super) fn items_in_pieces(
    bytes: &[u8],
    piece: usize,
    format: Option<TraceFormat>,
) -> (Vec<TraceItem>, Option<String>) {
    let found = items(bytes, usize::MAX, format);
    let other = items(bytes, piece, format);
    let is_damaged = |error: &Option<String>| {
        let kinds = ["data before byte", "data go on after byte"];
        error.as_ref().is_some_and(|error| kinds.iter().any(|kind| error.contains(kind)))
    };
    if is_damaged(&found.1) || is_damaged(&other.1) {
        let (short, long) =
            if found.0.len() < other.0.len() { (&found, &other) } else { (&other, &found) };
        assert!(long.0.starts_with(&short.0), "a pipe gives other items than a file");
        assert!(found.1.is_some() && other.1.is_some(), "{found:?}, in pieces {other:?}");
    } else {
        assert_eq!(found, other, "a pipe gives something else than a file");
    }
    found
}
