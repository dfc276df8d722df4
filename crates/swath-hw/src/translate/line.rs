//! Reading contiguity that is spread over a line of descriptors, as
//! [`swath_arch::formats::line`] says.

use swath_arch::formats::line;
use swath_arch::{BusError, Format, Order, PhysAddr, PhysMemory};

use crate::translate::decode::{Descriptor, Leaf, decode};

/// Returns Ascend and Descend of the base page whose descriptor stands at `at`. Takes in
/// the line, which is one read of memory. O(descriptors of a line).
///
/// # Errors
/// The [`BusError`] of the first descriptor that no memory answers.
pub(crate) fn contiguity<M: PhysMemory + ?Sized>(
    format: Format,
    at: PhysAddr,
    memory: &M,
) -> Result<(u64, u64), BusError> {
    let bytes = format.entry_bytes();
    let start = at.raw() & !(line::LINE_BYTES - 1);
    let mut words = [0; line::ENTRIES_MAX];
    let words = &mut words[..line::entries(format) as usize];
    for (word, at) in words.iter_mut().zip((start..).step_by(bytes as usize)) {
        let at = PhysAddr::new(at);
        *word = if bytes == 4 { memory.read_u32(at)?.into() } else { memory.read_u64(at)? };
    }
    let page = ((at.raw() - start) / bytes) as usize;
    let last = words.len() - 1;
    let preceding = (0..page).rev().take_while(|&i| goes_on(format, words[i], words[i + 1]));
    let following = (page..last).take_while(|&i| goes_on(format, words[i], words[i + 1]));
    let (preceding, following) = (preceding.count(), following.count());
    let before = if preceding == page { line::number(format.descend(), words) } else { 0 };
    let after = if page + following == last { line::number(format.ascend(), words) } else { 0 };
    Ok((following as u64 + after, preceding as u64 + before))
}

/// Returns true if the second of two neighbours maps a base page that goes on from the first's:
/// on the next frame, and alike in every bit but the free ones.
fn goes_on(format: Format, one: u64, next: u64) -> bool {
    let base_page = |word| match decode(format, format.levels().len() - 1, word) {
        Descriptor::Leaf(Leaf { frame, order: Order::BASE, .. }) => Some(frame.raw()),
        _ => None,
    };
    let (Some(first), Some(second)) = (base_page(one), base_page(next)) else { return false };
    let address = (first ^ second) << format.frame_bit();
    first + 1 == second && (one ^ next) & !line::free_bits(format) == address
}
