//! Traces of any format below any compression.

use super::file::items_in_pieces;

/// Reads a file of unknown format, in one piece and in pieces of a length that the first byte says.
pub fn run(bytes: &[u8]) {
    let Some((piece, file)) = bytes.split_first() else { return };
    items_in_pieces(file, usize::from(*piece) + 1, None);
}
