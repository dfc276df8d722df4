//! Ranges as sets of numbers: what is stated of an arbitrary number holds for each.

use swath_arch::{Extent, Order, Pfn, Word};
use swath_prove::{Bit, Symbol, all, any, assume, claim, prove, specify};

/// log2 of alignments: the ends, and the sizes of pages.
const ALIGNMENTS: [u32; 3] = [1, 12, 63];

/// Returns any range that does not reach beyond the last word.
fn range(start: &str, count: &str) -> Extent<Symbol> {
    let (start, count) = (Symbol::any(start), Symbol::any(count));
    let room = specify(|| Symbol::MAX.wrapping_sub(start));
    assume(!room.is_below(count));
    Extent::new(Pfn::of(start), count)
}

/// Returns one past the last number, which no operator under proof computes.
fn end(range: Extent<Symbol>) -> Symbol {
    specify(|| range.start.raw().wrapping_add(range.count))
}

/// Returns the condition that the range holds the number.
fn holds(range: Extent<Symbol>, number: Symbol) -> Bit {
    all([!number.is_below(range.start.raw()), number.is_below(end(range))])
}

/// Returns 2^log2.
fn power(log2: u32) -> Symbol {
    Symbol::from_bits(|i| Bit::from(i == log2 as usize))
}

/// Returns the condition that the number is a multiple of 2^log2.
fn is_multiple(number: Symbol, log2: u32) -> Bit {
    !any((0..log2 as usize).map(|i| number.bit(i)))
}

#[track_caller]
fn agrees(said: bool, condition: Bit, what: &str) {
    claim(if said { condition } else { !condition }, what);
}

#[test]
fn a_range_contains_its_numbers() {
    prove("addr/range.rs", [()], &[], |()| {
        let (range, number) = (range("start", "count"), Symbol::any("number"));
        agrees(range.contains(Pfn::of(number)), holds(range, number), "membership");
        agrees(range.is_empty(), range.count.equals(0), "emptiness");
        match range.position(Pfn::of(number)) {
            Some(at) => {
                claim(holds(range, number), "a position is inside");
                at.must_be(specify(|| number.wrapping_sub(range.start.raw())), "its distance");
            }
            None => claim(!holds(range, number), "outside"),
        }
        range.end().raw().must_be(end(range), "the end");
        let checked = range.checked_end().map(Pfn::raw);
        checked.expect("no overflow").must_be(end(range), "the checked end");
    });
}

#[test]
fn an_end_beyond_the_last_word_is_refused_or_saturates() {
    // What overflows does so with one more.
    prove("addr/range.rs", [()], &["Plus replaced by a sum and one"], |()| {
        let (start, count) = (Symbol::any("start"), Symbol::any("count"));
        let room = specify(|| Symbol::MAX.wrapping_sub(start));
        assume(room.is_below(count));
        let range = Extent::new(Pfn::of(start), count);
        claim(range.checked_end().is_none(), "refused");
        range.end().raw().must_be(Symbol::MAX, "saturated");
    });
}

#[test]
fn a_range_between_two_numbers_holds_those_between() {
    prove("addr/range.rs", [()], &[], |()| {
        let (low, high) = (Symbol::any("low"), Symbol::any("high"));
        let (number, between) =
            (Symbol::any("number"), Extent::between(Pfn::of(low), Pfn::of(high)));
        let inside = all([!number.is_below(low), number.is_below(high)]);
        claim(holds(between, number).is(inside), "membership");
    });
}

#[test]
fn a_range_covers_another_if_it_holds_all_of_it() {
    prove("addr/range.rs", [()], &[], |()| {
        let (a, b) = (range("a", "a's count"), range("b", "b's count"));
        let number = Symbol::any("number");
        if a.covers(b) {
            claim(any([!holds(b, number), holds(a, number)]), "each number is in both");
        } else {
            let (first, last) = (b.start.raw(), specify(|| end(b).wrapping_sub(Symbol::from(1))));
            let missing =
                any([first, last].map(|number| all([holds(b, number), !holds(a, number)])));
            claim(missing, "the first or the last is missing");
        }
    });
}

#[test]
fn an_intersection_is_from_the_later_start_to_the_earlier_end() {
    // Of two equal numbers either is the lower.
    prove("addr/range.rs", [()], &["Less replaced by its contrary where both are equal"], |()| {
        let (a, b) = (range("a", "a's count"), range("b", "b's count"));
        let common = a.intersect(b);
        let (start, count) = specify(|| {
            let start = if a.start.raw() < b.start.raw() { b.start } else { a.start };
            let end = if end(a) < end(b) { end(a) } else { end(b) };
            (start.raw(), end.saturating_sub(start.raw()))
        });
        common.start.raw().must_be(start, "the later start");
        common.count.must_be(count, "as far as the earlier end");
    });
}

#[test]
fn ranges_overlap_if_they_share_a_number() {
    prove("addr/range.rs", [()], &[], |()| {
        let (a, b) = (range("a", "a's count"), range("b", "b's count"));
        let firsts = [a.start.raw(), b.start.raw()];
        // The later of the two starts is in both, if any number is.
        let shared = any(firsts.map(|number| all([holds(a, number), holds(b, number)])));
        agrees(a.overlaps(b), shared, "a shared number");
    });
}

#[test]
fn the_parts_of_a_range_make_it_up() {
    prove("addr/range.rs", [()], &["Less replaced by its contrary where both are equal"], |()| {
        let (range, at) = (range("start", "count"), Symbol::any("at"));
        let (low, high) = range.split_at(at);
        let count = specify(|| if at < range.count { at } else { range.count });
        low.start.raw().must_be(range.start.raw(), "the first begins with the whole");
        low.count.must_be(count, "and is cut where it was said");
        high.start.raw().must_be(end(low), "the second begins where the first ends");
        high.count.must_be(specify(|| range.count.wrapping_sub(count)), "and is the rest");
    });
}

#[test]
fn a_block_is_aligned_and_holds_its_number() {
    let orders = (0..=Order::MAX.k() as u8).filter_map(Order::new);
    prove("addr/range.rs", orders, &[], |order| {
        let number = Symbol::any("number");
        let block = Extent::block_around(Pfn::of(number), order);
        block.count.must_be(power(order.k()), "its length");
        claim(is_multiple(block.start.raw(), order.k()), "its alignment");
        let offset = specify(|| number.wrapping_sub(block.start.raw()));
        claim(offset.is_below(power(order.k())), "it holds the number");
        let any_range = Extent::new(Pfn::of(number), Symbol::any("count"));
        let is_one =
            all([any_range.count.equals(power(order.k())), is_multiple(number, order.k())]);
        agrees(any_range.is_block(order), is_one, "what a block is");
    });
}

#[test]
fn rounding_outward_adds_less_than_a_block_at_each_end() {
    prove("addr/range.rs", ALIGNMENTS, &[], |log2: u32| {
        let range = range("start", "count");
        let Some(out) = range.align_outward(log2) else {
            let highest = Symbol::from_bits(|i| Bit::from(i >= log2 as usize));
            return claim(highest.is_below(end(range)), "no multiple is left");
        };
        let (low, high) = (out.start.raw(), end(out));
        claim(all([is_multiple(low, log2), is_multiple(high, log2)]), "whole blocks");
        claim(all([!range.start.raw().is_below(low), !high.is_below(end(range))]), "it covers");
        let added =
            specify(|| (range.start.raw().wrapping_sub(low), high.wrapping_sub(end(range))));
        claim(all([added.0, added.1].map(|added| added.is_below(power(log2)))), "no block more");
    });
}

#[test]
fn rounding_inward_drops_less_than_a_block_at_each_end() {
    prove("addr/range.rs", ALIGNMENTS, &[], |log2: u32| {
        let (range, number) = (range("start", "count"), Symbol::any("number"));
        let inner = range.align_inward(log2);
        claim(any([!holds(inner, number), holds(range, number)]), "it lies in the range");
        claim(any([inner.count.equals(0), is_multiple(inner.start.raw(), log2)]), "its start");
        claim(is_multiple(inner.count, log2), "whole blocks");
        // Any whole block of the range lies in it.
        let low = Symbol::from_bits(|i| if i < log2 as usize { Bit::FALSE } else { number.bit(i) });
        let last = Symbol::from_bits(|i| if i < log2 as usize { Bit::TRUE } else { number.bit(i) });
        let whole = all([holds(range, low), holds(range, last)]);
        claim(any([!whole, holds(inner, number)]), "no whole block is lost");
    });
}

#[test]
fn the_first_block_of_a_range_is_the_largest_that_fits() {
    // Of two equal orders either is the lower.
    let equivalents = ["Zeros replaced by one less"];
    prove("addr/order.rs", [Order::known(9)], &equivalents, |max| {
        let (start, count) = (Symbol::any("start"), Symbol::any("count"));
        assume(!count.equals(0));
        let order = Order::fitting(start, count, max).k();
        let fits = |k: u32| all([is_multiple(start, k), !count.is_below(power(k))]);
        claim(order <= max.k(), "no larger than was said");
        claim(fits(order), "it fits");
        claim(any([Bit::from(order == max.k()), !fits(order + 1)]), "no larger one does");
    });
}
