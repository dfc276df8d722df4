//! Contiguity spread over a line of descriptors, written and read as
//! [`swath_arch::formats::line`] says.

use swath_arch::formats::line;
use swath_arch::{BusError, Format, Order, PhysAddr, PhysMemory, Scattered};

use crate::table::encode::{self, Kind};
use crate::table::piece::Piece;
use crate::table::walk::View;

/// The descriptors of a line.
#[derive(Clone, Copy)]
struct DescriptorLine {
    /// The first of them.
    at: PhysAddr,
    words: [u64; line::ENTRIES_MAX],
    entries: usize,
}

impl DescriptorLine {
    /// A line that is not known, to be written whole.
    fn new(format: Format, at: PhysAddr) -> Self {
        Self { at, words: [0; line::ENTRIES_MAX], entries: line::entries(format) as usize }
    }

    /// Reads the line in which the entry at `at` stands.
    fn read<M: PhysMemory>(view: View<'_, M>, at: PhysAddr) -> Result<Self, BusError> {
        let first = PhysAddr::new(at.raw() & !(line::LINE_BYTES - 1));
        let mut line = Self::new(view.format(), first);
        for i in 0..line.entries {
            line.words[i] = view.read(view.entry(first, i as u64))?;
        }
        Ok(line)
    }

    /// Returns the number that the field's bits make over the line.
    fn get(&self, field: Scattered) -> u64 {
        line::number(field, &self.words[..self.entries])
    }

    /// Sets it; a greater one than fits saturates.
    fn set(&mut self, format: Format, field: Scattered, number: u64) {
        let mut rest = number.min(line::max(format));
        for word in &mut self.words[..self.entries] {
            *word = field.set_saturating(*word, rest & field.max());
            rest >>= field.width();
        }
    }
}

/// Returns the number of the line in which the entry at `at` stands.
pub(crate) fn get<M: PhysMemory>(
    view: View<'_, M>,
    at: PhysAddr,
    field: Scattered,
) -> Result<u64, BusError> {
    Ok(DescriptorLine::read(view, at)?.get(field))
}

/// Sets the number of the line in which the entry at `at` stands, and returns the
/// number of words written. A walker that reads in between finds the old number, the new one,
/// or less than one of them: what is in neither goes before what is new comes.
///
/// # Errors
/// The bus error; the number is then as it was.
pub(crate) fn set<M: PhysMemory>(
    view: View<'_, M>,
    at: PhysAddr,
    field: Scattered,
    number: u64,
) -> Result<u64, BusError> {
    let format = view.format();
    let old = DescriptorLine::read(view, at)?;
    let number = number.min(line::max(format));
    let mut new = old;
    let mut writes = 0;
    for target in [number & old.get(field), number] {
        let before = new;
        new.set(format, field, target);
        for i in 0..old.entries {
            if new.words[i] == before.words[i] {
                continue;
            }
            if let Err(bus) = view.write(view.entry(old.at, i as u64), new.words[i]) {
                for (i, &word) in old.words[..old.entries].iter().enumerate() {
                    let _ = view.write(view.entry(old.at, i as u64), word);
                }
                return Err(bus);
            }
            writes += 1;
        }
    }
    Ok(writes)
}

/// Returns Ascend and Descend of the base page whose entry stands at `at`.
pub(crate) fn contiguity<M: PhysMemory>(
    view: View<'_, M>,
    at: PhysAddr,
) -> Result<(u64, u64), BusError> {
    let (format, level) = (view.format(), view.leaf_level());
    let line = DescriptorLine::read(view, at)?;
    let goes_on = |i: usize| {
        let [one, next] = [line.words[i], line.words[i + 1]];
        let base = |word| encode::kind(format, level, word) == Kind::Leaf(Order::BASE);
        let said = |word| word & !line::free_bits(format);
        base(one) && base(next) && said(one) + encode::word_step(format, 1) == said(next)
    };
    let page = ((at.raw() - line.at.raw()) / format.entry_bytes()) as usize;
    let last = line.entries - 1;
    let (mut first, mut end) = (page, page);
    while first > 0 && goes_on(first - 1) {
        first -= 1;
    }
    while end < last && goes_on(end) {
        end += 1;
    }
    let before = if first == 0 { line.get(format.descend()) } else { 0 };
    let after = if end == last { line.get(format.ascend()) } else { 0 };
    Ok(((end - page) as u64 + after, (page - first) as u64 + before))
}

/// Writes the piece's descriptors, and the numbers of their lines, Before only if
/// `with_before`. One write per page; where the piece has one of a line's ends but not all of it, a
/// read of each of the line's descriptors, and a write of each other whose bits change. Returns the
/// number of these.
///
/// # Errors
/// The bus error, and how many of the piece's descriptors were written before it.
pub(crate) fn write_piece<M: PhysMemory>(
    view: View<'_, M>,
    with_before: bool,
    piece: Piece,
) -> Result<u64, (BusError, u64)> {
    let format = view.format();
    let entries = line::entries(format);
    let mut others = 0;
    let mut done = 0;
    while done < piece.count {
        let at = view.entry(piece.at, done);
        let first = (piece.page + done) & (entries - 1);
        let count = (entries - first).min(piece.count - done);
        let read = if count == entries {
            Ok(DescriptorLine::new(format, at))
        } else {
            DescriptorLine::read(view, at)
        };
        let old = read.map_err(|bus| (bus, done))?;
        let mut line = old;
        if first == 0 && with_before {
            line.set(format, format.descend(), piece.before + done);
        }
        if first + count == entries {
            line.set(format, format.ascend(), piece.after - done - count);
        }
        // Those of others first: the pages whose numbers they help to say are not there yet.
        for i in (0..entries).filter(|i| !(first..first + count).contains(i)) {
            let word = line.words[i as usize];
            if word != old.words[i as usize] {
                view.write(view.entry(line.at, i), word).map_err(|bus| (bus, done))?;
                others += 1;
            }
        }
        for i in 0..count {
            let word = piece.word.wrapping_add(encode::word_step(format, done + i));
            let said = line.words[(first + i) as usize] & line::free_bits(format);
            view.write(view.entry(at, i), word | said).map_err(|bus| (bus, done + i))?;
        }
        done += count;
    }
    Ok(others)
}
