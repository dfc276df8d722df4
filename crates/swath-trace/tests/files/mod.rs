//! Tests of every file that is read item by item.

use std::fmt::Debug;

use swath_trace::container::FileFormat;

/// A file around the given content.
pub(crate) fn file_of(format: &FileFormat, content: &[u8]) -> Vec<u8> {
    [&format.magic[..], &[format.version], &zstd::encode_all(content, 1).unwrap()].concat()
}

/// The items before an error or the end, and the error; nothing comes after.
pub(crate) fn read_all<T, E>(
    reader: &mut impl Iterator<Item = Result<T, E>>,
) -> (Vec<T>, Option<E>) {
    let mut all = Vec::new();
    let mut failure = None;
    for item in &mut *reader {
        assert!(failure.is_none(), "something after an error");
        match item {
            Ok(item) => all.push(item),
            Err(error) => failure = Some(error),
        }
    }
    assert!(reader.next().is_none());
    (all, failure)
}

/// Cuts the file at every byte: `read` gives what comes before and an error,
/// which `check` gets with the length.
pub(crate) fn cut_everywhere<T: Debug + PartialEq, E>(
    bytes: &[u8],
    samples: &[T],
    read: impl Fn(&[u8]) -> (Vec<T>, Option<E>),
    check: impl Fn(usize, E),
) {
    for len in 0..bytes.len() {
        let (all, failure) = read(&bytes[..len]);
        assert!(samples.starts_with(&all), "{len} bytes");
        check(len, failure.unwrap_or_else(|| panic!("{len} of {} bytes", bytes.len())));
    }
}

/// Turns every bit of the file: `read` fails, or gives what it was. Headers
/// hold a few bits that change nothing (time stamp, operating system); contents
/// are under a checksum.
pub(crate) fn turn_every_bit<T: Debug + PartialEq, E>(
    bytes: &[u8],
    samples: &[T],
    read: impl Fn(&[u8]) -> (Vec<T>, Option<E>),
) {
    for at in 0..8 * bytes.len() {
        let mut bad = bytes.to_vec();
        bad[at / 8] ^= 1 << (at % 8);
        let (all, failure) = read(&bad);
        assert!(failure.is_some() || all == samples, "byte {}, bit {}", at / 8, at % 8);
    }
}
