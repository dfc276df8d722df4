//! Traces of any format below any compression.

use super::file::items;

/// Reads a file of unknown format, in one piece and in pieces of a length that the first byte says.
pub fn run(bytes: &[u8]) {
    let Some((piece, file)) = bytes.split_first() else { return };
    let found = items(file, usize::MAX, None);
    assert_eq!(found, items(file, usize::from(*piece) + 1, None), "a pipe gives something else");
}
