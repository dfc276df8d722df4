//! Traces of any format below any compression.

use super::file::items;

/// Reads a file of unknown format, in one piece and in pieces of a length that the first byte says.
/// What a decompressor finds wrong it finds somewhere before the byte that is named.
pub fn run(bytes: &[u8]) {
    let Some((piece, file)) = bytes.split_first() else { return };
    let place = |error: String| error.replace(|letter: char| letter.is_ascii_digit(), "");
    let (found, error) = items(file, usize::MAX, None);
    let (in_pieces, other) = items(file, usize::from(*piece) + 1, None);
    assert_eq!(found, in_pieces, "a pipe gives something else");
    assert_eq!(error.map(place), other.map(place), "a pipe gives something else");
}
