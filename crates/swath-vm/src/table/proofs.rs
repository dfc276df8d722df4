//! The descriptors, proved for every frame, every table and every word.

extern crate std;

use swath_arch::{Attributes, Format, MemoryKind, Order, Pfn, PhysAddr};
use swath_prove::{Symbol, any, assume, claim, prove};

use crate::table::encode::{Entry, Kind, Leaf, decode, in_use, kind, leaf, resume, suspend, table};

/// A page of a format: its level and order, what it permits, and who owns it.
#[derive(Clone, Copy)]
struct Page {
    format: Format,
    level: usize,
    order: Order,
    attributes: Attributes,
    owned: bool,
}

/// Every page size of every format with every attribute.
fn pages() -> impl Iterator<Item = Page> {
    let sizes = Format::ALL.into_iter().flat_map(|format| {
        let levels = format.levels().iter().enumerate();
        levels
            .flat_map(move |(level, of)| of.leaves.iter().map(move |&order| (format, level, order)))
    });
    sizes.flat_map(|(format, level, order)| {
        (0..128_u32).map(move |bits| Page {
            format,
            level,
            order,
            attributes: Attributes {
                writable: bits & 1 != 0,
                user: bits & 2 != 0,
                executable: bits & 4 != 0,
                global: bits & 8 != 0,
                accessed: bits & 16 != 0,
                memory: if bits & 32 != 0 { MemoryKind::Device } else { MemoryKind::Normal },
            },
            owned: bits & 64 != 0,
        })
    })
}

/// Returns what an entry says of the page, at any frame where it can lie.
fn said(page: Page) -> Leaf<Symbol> {
    let frame = Symbol::any("frame");
    let is_super = page.order == Order::known(12) && page.format == Format::ArmV7;
    let bits = if is_super { 40 } else { page.format.pa_bits() as usize } - 12;
    let wrong = (0..64).filter(|&i| i < page.order.k() as usize || i >= bits);
    assume(!any(wrong.map(|i| frame.bit(i))));
    let Page { order, attributes, owned, .. } = page;
    Leaf { order, frame: Pfn::of(frame), attributes, owned }
}

/// What is decoded.
#[derive(Clone, Copy)]
enum Written {
    /// A leaf of ours.
    Leaf(Page),
    /// A table of ours.
    Table(Format, usize),
    /// Any word, whoever wrote it.
    Word(Format, usize),
}

/// Returns every level of every format, or all but the last.
fn levels(besides_last: bool) -> impl Iterator<Item = (Format, usize)> {
    Format::ALL.into_iter().flat_map(move |format| {
        (0..format.levels().len() - usize::from(besides_last)).map(move |level| (format, level))
    })
}

/// log2 of the alignment of tables: ARMv7's are 1 KiB, those of the others a frame.
fn table_log2(format: Format) -> usize {
    if format == Format::ArmV7 { 10 } else { 12 }
}

#[test]
fn descriptors_say_what_was_encoded() {
    let words = levels(false).map(|(format, level)| Written::Word(format, level));
    let tables = levels(true).map(|(format, level)| Written::Table(format, level));
    let cases = words.chain(tables).chain(pages().map(Written::Leaf));
    // Bits of a mask below the page's alignment: the address is rounded down besides.
    let equivalents = ["Constant replaced by one more"];
    prove("table/encode.rs", cases, &equivalents, |written| match written {
        Written::Leaf(page) => a_leaf_is_read(page),
        Written::Table(format, level) => a_table_is_found(format, level),
        Written::Word(format, level) => a_word_is_of_the_format(format, level),
    });
}

fn a_leaf_is_read(page: Page) {
    let said = said(page);
    let word = leaf(page.format, page.level, said);
    claim(in_use(page.format, word), "the hardware looks at it");
    let Entry::Leaf(read) = decode(page.format, page.level, word) else {
        return claim(false, "it is a leaf");
    };
    claim(read.order == page.order, "its size");
    claim(read.attributes == page.attributes, "its attributes");
    claim(read.owned == page.owned, "its owner");
    read.frame.raw().must_be(said.frame.raw(), "its frame");
    a_leaf_is_suspended(page, word);
}

/// States that a leaf, with any contiguity in it, is empty while it is suspended, and is what
/// it was when it is resumed.
fn a_leaf_is_suspended(page: Page, mut word: Symbol) {
    if page.order == Order::BASE {
        word = page.format.anchor().set_saturating(word, Symbol::any("contiguity"));
    }
    let asleep = suspend(page.format, page.level, word);
    claim(!in_use(page.format, asleep), "the hardware does not look at it");
    claim(kind(page.format, page.level, asleep) == Kind::Empty, "it is empty");
    resume(page.format, page.level, asleep).must_be(word, "it is what it was");
}

fn a_table_is_found(format: Format, level: usize) {
    let at = Symbol::any("table");
    let wrong = (0..64).filter(|&i| i < table_log2(format) || i >= format.pa_bits() as usize);
    assume(!any(wrong.map(|i| at.bit(i))));
    let word = table(format, PhysAddr::of(at));
    claim(in_use(format, word), "the hardware looks at it");
    match kind(format, level, word) {
        Kind::Table(found) => found.raw().must_be(at, "the address"),
        _ => claim(false, "it is a table"),
    }
}

/// States that the word does not lead outside of what the format can say.
fn a_word_is_of_the_format(format: Format, level: usize) {
    let word = Symbol::any("word");
    let above = |raw: Symbol, bits: u32| any((bits as usize..64).map(|i| raw.bit(i)));
    let below = |raw: Symbol, bits: usize| any((0..bits).map(|i| raw.bit(i)));
    match decode(format, level, word) {
        Entry::Empty => {
            let bits = if format == Format::ArmV7 { 2 } else { 1 };
            claim(!below(word, bits), "the lowest bits are zeros");
        }
        Entry::Table(at) => {
            claim(!above(at.raw(), format.pa_bits()), "a table in physical memory");
            claim(!below(at.raw(), table_log2(format)), "an aligned table");
            claim(level + 1 < format.levels().len(), "the last level has no tables");
        }
        Entry::Leaf(leaf) => {
            let is_super = format == Format::ArmV7 && leaf.order == Order::known(12);
            let bits = if is_super { 40 } else { format.pa_bits() };
            claim(!above(leaf.frame.raw(), bits - 12), "frames of physical memory");
            claim(!below(leaf.frame.raw(), leaf.order.k() as usize), "an aligned page");
        }
    }
}
