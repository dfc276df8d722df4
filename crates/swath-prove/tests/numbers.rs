//! Addresses and numbers, for every raw word.

use swath_arch::{Format, Pfn, PhysAddr, VirtAddr, Vpn, Word};
use swath_prove::{Bit, Symbol, all, any, claim, prove};

/// Returns the bits of a word from `first` on and below `past`; zeros elsewhere.
fn part(word: Symbol, first: usize, past: usize) -> Symbol {
    Symbol::from_bits(|i| if i >= first && i < past { word.bit(i) } else { Bit::FALSE })
}

#[test]
fn rounding_down_drops_the_low_bits() {
    prove("addr/number.rs", 0..64, &[], |log2: u32| {
        let raw = Symbol::any("raw");
        let down = Pfn::of(raw).align_down(log2).raw();
        down.must_be(part(raw, log2 as usize, 64), "the bits from log2 on");
    });
}

#[test]
fn the_offset_is_the_low_bits() {
    prove("addr/number.rs", 0..64, &[], |log2: u32| {
        let raw = Symbol::any("raw");
        let offset = Pfn::of(raw).offset_in(log2);
        offset.must_be(part(raw, 0, log2 as usize), "the bits below log2");
    });
}

#[test]
fn rounding_up_is_the_next_multiple() {
    prove("addr/number.rs", 0..64, &[], |log2: u32| {
        let raw = Symbol::any("raw");
        let highest = Symbol::from_bits(|i| Bit::from(i >= log2 as usize));
        match Pfn::of(raw).align_up(log2).map(Pfn::raw) {
            None => claim(highest.is_below(raw), "no multiple is left"),
            Some(up) => {
                claim(!any((0..log2 as usize).map(|i| up.bit(i))), "a multiple");
                claim(!up.is_below(raw), "not below");
                let above = swath_prove::specify(|| up.wrapping_sub(raw));
                claim(above.is_below(part_of_power(log2)), "the next");
            }
        }
    });
}

/// Returns 2^log2.
fn part_of_power(log2: u32) -> Symbol {
    Symbol::from_bits(|i| Bit::from(i == log2 as usize))
}

#[test]
fn aligned_is_without_low_bits() {
    prove("addr/number.rs", 0..=64, &[], |log2: u32| {
        let raw = Symbol::any("raw");
        let aligned = Pfn::of(raw).is_aligned(log2);
        let low = any((0..log2 as usize).map(|i| raw.bit(i)));
        claim(if aligned { !low } else { low }, "no bit below log2");
    });
}

#[test]
fn sums_and_distances_are_exact_or_refused() {
    prove("addr/number.rs", [()], &[], |()| {
        let (raw, count) = (Symbol::any("raw"), Symbol::any("count"));
        let frame = Pfn::of(raw);
        match frame.checked_add(count) {
            Some(sum) => {
                claim(!sum.raw().is_below(raw), "a sum is not below its parts");
                (sum - frame).must_be(count, "the distance is what was added");
                (frame + count).raw().must_be(sum.raw(), "the operator adds the same");
                let back = sum.checked_sub(count).map(Pfn::raw);
                back.expect("not below zero").must_be(raw, "and back");
            }
            None => {
                let room = swath_prove::specify(|| Symbol::MAX.wrapping_sub(raw));
                claim(room.is_below(count), "no room");
            }
        }
    });
}

#[test]
fn a_byte_is_its_page_and_its_offset() {
    prove("addr/number.rs", [()], &[], |()| {
        let raw = Symbol::any("raw");
        let (physical, virtual_) = (PhysAddr::of(raw), VirtAddr::of(raw));
        for (number, offset) in [
            (physical.frame().raw(), physical.frame_offset()),
            (virtual_.page().raw(), virtual_.page_offset()),
        ] {
            let same =
                |i: usize| number.bit(i).is(if i < 52 { raw.bit(i + 12) } else { Bit::FALSE });
            claim(all((0..64).map(same)), "the number is the bits from 12 on");
            offset.must_be(part(raw, 0, 12), "the offset is the bits below 12");
        }
        Pfn::of(raw).address().frame().raw().must_be(part(raw, 0, 52), "a frame's address");
        Vpn::of(raw).address().page().raw().must_be(part(raw, 0, 52), "a page's address");
        Pfn::of(raw).address().frame_offset().must_be(0, "a frame's first byte");
        Vpn::of(raw).address().page_offset().must_be(0, "a page's first byte");
    });
}

#[test]
fn canonical_addresses_extend_their_highest_bit() {
    prove("formats/format.rs", Format::ALL, &[], |format| {
        let raw = Symbol::any("raw");
        let canonical = format.is_canonical(VirtAddr::of(raw));
        let extends = match format {
            Format::ArmV7 => all((32..64).map(|i| !raw.bit(i))),
            Format::ArmV8 => all((48..64).map(|i| !raw.bit(i))),
            Format::X86_64 | Format::Sv48 => all((48..64).map(|i| raw.bit(i).is(raw.bit(47)))),
            Format::Sv39 => all((39..64).map(|i| raw.bit(i).is(raw.bit(38)))),
        };
        claim(if canonical { extends } else { !extends }, "the bits above");
    });
}
