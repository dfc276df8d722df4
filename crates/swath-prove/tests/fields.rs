//! Fields of descriptors, and numbers spread over several.

use swath_arch::{Field, Format};
use swath_prove::{Bit, Symbol, all, any, claim, prove, specify};

/// Every field that there can be.
fn fields() -> impl Iterator<Item = Field> {
    (0..64).flat_map(|low| (low..64.min(low + 63)).map(move |high| Field::bits(high, low)))
}

#[test]
fn a_field_is_read_and_written_alone() {
    prove("formats/field.rs", fields(), &[], |field| {
        let (word, value) = (Symbol::any("word"), Symbol::any("value"));
        let (low, width) = (field.low as usize, field.width as usize);
        let read = field.get(word);
        let said = |i: usize| if i < width { word.bit(low + i) } else { Bit::FALSE };
        claim(all((0..64).map(|i| read.bit(i).is(said(i)))), "what is read");
        let written = field.put(word, value);
        let expected = |i: usize| {
            if i >= low && i < low + width { value.bit(i - low) } else { word.bit(i) }
        };
        claim(all((0..64).map(|i| written.bit(i).is(expected(i)))), "what is written");
    });
}

#[test]
fn a_constant_is_written_and_recognized() {
    prove(
        "formats/field.rs",
        [Field::bit(0), Field::bits(5, 3), Field::bits(62, 1), Field::bit(63)],
        &[],
        |field| {
            let word = Symbol::any("word");
            for value in [0, 1, field.max(), u64::MAX] {
                let written = field.set(word, value);
                let value = value & field.max();
                claim(field.is(written, value), "what is written is there");
                let alone = specify(|| field.put(word, Symbol::from(value)));
                written.must_be(alone, "and nothing else");
                let is_there = specify(|| field.get(word)).equals(value);
                let said = field.is(word, value);
                claim(if said { is_there } else { !is_there }, "what is there");
            }
        },
    );
}

#[test]
fn contiguity_round_trips_and_saturates() {
    // Of two equal numbers either is the lower.
    let equivalents = ["Less replaced by its contrary where both are equal"];
    let places = Format::ALL.into_iter().flat_map(|f| [f.ascend(), f.descend(), f.anchor()]);
    prove("formats/field.rs", places, &equivalents, |place| {
        let (word, value) = (Symbol::any("word"), Symbol::any("value"));
        let written = place.set_saturating(word, value);
        let read = place.get(written);
        let fits = !specify(|| Symbol::from(place.max())).is_below(value);
        claim(any([!fits, read.equals(value)]), "a value that fits");
        claim(any([fits, read.equals(place.max())]), "a value beyond");
        let mask = place.0.iter().fold(0, |mask, field| mask | field.mask());
        let kept = |i: usize| any([Bit::from(mask >> i & 1 == 1), written.bit(i).is(word.bit(i))]);
        claim(all((0..64).map(kept)), "all other bits stay");
    });
}
