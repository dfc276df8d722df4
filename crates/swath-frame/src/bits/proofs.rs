//! The bits of bitmaps and trees, proved for every content of the words.

extern crate std;

use std::vec;
use std::vec::Vec;

use swath_prove::{Bit, Symbol, all, any, assume, claim, prove, specify};

use crate::bits::Bitmap;
use crate::bits::tree::Tree;
use crate::bits::words::*;

/// Units of the sets: three words and a summary.
const UNITS: usize = 192;

/// Returns three arbitrary words.
fn words() -> [Symbol; 3] {
    ["word 0", "word 1", "word 2"].map(Symbol::any)
}

/// Returns the bit of a unit.
fn unit(words: &[Symbol], number: usize) -> Bit {
    words[number / 64].bit(number % 64)
}

/// Returns the units from `first` on and below `past`.
fn units(words: &[Symbol], first: usize, past: usize) -> impl Iterator<Item = Bit> {
    (first..past).map(|number| unit(words, number))
}

#[track_caller]
fn agrees(said: bool, condition: Bit, what: &str) {
    claim(if said { condition } else { !condition }, what);
}

/// Stretches of bits in up to three words: each start in a word, with counts that end in
/// it, at its end, in the next and in the one after.
fn stretches() -> impl Iterator<Item = (usize, usize)> {
    (0..64).flat_map(|first| {
        let counts =
            [1, 2, 31, 63 - first, 64 - first, 65 - first, 64, 127 - first, 128 - first, 128];
        let mut counts: Vec<usize> = counts.into_iter().filter(|&count| count > 0).collect();
        counts.sort_unstable();
        counts.dedup();
        counts.into_iter().map(move |count| (first, count))
    })
}

#[test]
fn ones_are_the_low_bits() {
    prove("bits/words.rs", 1..=64, &[], |count| {
        let word: Symbol = ones(count);
        word.must_be(Symbol::from_bits(|i| Bit::from(i < count)), "the bits below the count");
    });
}

#[test]
fn ones_across_are_a_stretch_of_two_words() {
    let cases = (1..=64).flat_map(|count| (0..64).map(move |from| (count, from)));
    prove("bits/words.rs", cases, &[], |(count, from)| {
        let words: [Symbol; 2] = ones_across(count, from);
        let expected = |i: usize| Bit::from(i >= from && i < from + count);
        claim(all((0..128).map(|i| unit(&words, i).is(expected(i)))), "the stretch");
    });
}

#[test]
fn runs_are_found_by_doubling() {
    prove("bits/words.rs", 1..=64, &[], |count: usize| {
        let word = Symbol::any("word");
        let found = starts_of_run(word, count as u64);
        let starts = |i: usize| {
            if i + count > 64 { Bit::FALSE } else { all((i..i + count).map(|i| word.bit(i))) }
        };
        claim(all((0..64).map(|i| found.bit(i).is(starts(i)))), "where that many ones begin");
    });
}

#[test]
fn a_pair_is_the_unit_and_its_twin() {
    prove("bits/words.rs", [()], &[], |()| {
        let number = Symbol::any("unit");
        let pair = pair(number);
        // Bit i is in the pair if i and the unit differ in the lowest bit at most.
        let twin =
            |i: usize| all((1..6).map(|bit| number.bit(bit).is(Bit::from(i >> bit & 1 == 1))));
        claim(all((0..64).map(|i| pair.bit(i).is(twin(i)))), "both twins");
    });
}

#[test]
fn a_full_parent_is_seen_in_a_word() {
    prove("bits/words.rs", 0..=6, &[], |granularity| {
        let (size, word) = (1 << granularity, Symbol::any("word"));
        let firsts = Symbol::from_bits(|i| Bit::from(i % size == 0));
        let lasts = Symbol::from_bits(|i| Bit::from(i % size == size - 1));
        let full =
            any((0..64 / size)
                .map(|parent| all(units(&[word], parent * size, (parent + 1) * size))));
        agrees(has_full(word, firsts, lasts), full, "a parent of ones");
    });
}

#[test]
fn bits_are_set_in_a_stretch() {
    prove("bits/words.rs", stretches(), &[], |(first, count)| {
        let before = words();
        let mut after = before;
        set(&mut after, first, count);
        let expected = |i: usize| {
            if i >= first && i < first + count { Bit::TRUE } else { unit(&before, i) }
        };
        claim(all((0..UNITS).map(|i| unit(&after, i).is(expected(i)))), "the stretch and no more");
    });
}

#[test]
fn bits_are_set_where_all_are_clear() {
    // A chunk is eight words: whole ones, and eight words less a bit at an end or at both.
    let chunks = [(0, 64), (0, 512), (0, 1024), (1, 511), (0, 511), (1, 510)];
    prove("bits/words.rs", stretches().step_by(3).chain(chunks), &[], |(first, count)| {
        let mut before = [zero(); 16];
        for (place, word) in [0, 1, 8].into_iter().zip(words()) {
            before[place] = word;
        }
        let mut after = before;
        let is_set = set_clear(&mut after, first, count);
        agrees(is_set, !any(units(&before, first, first + count)), "all were clear");
        let is_changed = |i: usize| is_set && i >= first && i < first + count;
        let expected = |i: usize| if is_changed(i) { Bit::TRUE } else { unit(&before, i) };
        claim(all((0..1024).map(|i| unit(&after, i).is(expected(i)))), "the stretch and no more");
    });
}

#[test]
fn bits_are_cleared_in_a_stretch() {
    prove("bits/words.rs", stretches(), &[], |(first, count)| {
        let before = words();
        let mut after = before;
        clear(&mut after, first, count);
        let expected = |i: usize| {
            if i >= first && i < first + count { Bit::FALSE } else { unit(&before, i) }
        };
        claim(all((0..UNITS).map(|i| unit(&after, i).is(expected(i)))), "the stretch and no more");
    });
}

#[test]
fn a_stretch_of_ones_is_recognized() {
    prove("bits/words.rs", stretches(), &[], |(first, count)| {
        let words = words();
        let expected = all(units(&words, first, first + count));
        agrees(all_set(&words, first, count), expected, "all of them");
    });
}

#[test]
fn a_one_in_a_stretch_is_recognized() {
    prove("bits/words.rs", stretches(), &[], |(first, count)| {
        let words = words();
        let expected = any(units(&words, first, first + count));
        agrees(any_set(&words, first, count), expected, "one of them");
    });
}

#[test]
fn the_first_zero_of_a_stretch_is_found() {
    prove("bits/words.rs", stretches().step_by(3), &[], |(first, count)| {
        let words = words();
        match first_clear(&words, first, count) {
            None => claim(all(units(&words, first, first + count)), "there is none"),
            Some(at) => {
                claim(at >= first && at < first + count, "it lies in the stretch");
                claim(!unit(&words, at), "it is a zero");
                claim(all(units(&words, first, at)), "no other comes before");
            }
        }
    });
}

/// Returns a tree's three words and its summary, which says which of them are not zero.
fn tree_words() -> [Symbol; 4] {
    let [a, b, c] = words();
    [a, b, c, summary(&[a, b, c])]
}

fn summary(words: &[Symbol]) -> Symbol {
    let marks: Vec<Bit> = words.iter().map(|word| any((0..64).map(|i| word.bit(i)))).collect();
    Symbol::from_bits(|i| marks.get(i).copied().unwrap_or(Bit::FALSE))
}

/// States that a tree's words are those before but for one unit, and its summary true.
#[track_caller]
fn changed(before: &[Symbol; 4], after: &[Symbol; 4], number: usize, is_there: bool) {
    let expected = |i: usize| if i == number { Bit::from(is_there) } else { unit(before, i) };
    claim(all((0..UNITS).map(|i| unit(after, i).is(expected(i)))), "one unit has changed");
    after[3].must_be(summary(&after[..3]), "the summary is true");
}

fn numbers() -> [usize; 6] {
    [0, 31, 63, 64, 128, UNITS - 1]
}

#[test]
fn a_tree_gains_and_loses_a_number() {
    let tree = Tree::new(UNITS);
    prove("bits/tree.rs", numbers(), &[], |number| {
        let before = tree_words();
        let none = |words: &[Symbol]| !any(units(words, 0, UNITS));
        agrees(tree.is_empty(&before[..], 0), none(&before), "emptiness");
        agrees(tree.contains(&before[..], 0, number), unit(&before, number), "membership");
        let mut after = before;
        agrees(tree.insert(&mut after[..], 0, number), none(&before), "it was empty");
        changed(&before, &after, number, true);
        let full = after;
        agrees(tree.remove(&mut after[..], 0, number), none(&after), "it is empty");
        changed(&full, &after, number, false);
    });
}

#[test]
fn a_tree_has_a_first_and_a_last_number() {
    let tree = Tree::new(UNITS);
    prove("bits/tree.rs", [false, true], &[], |is_last| {
        let words = tree_words();
        let found = if is_last { tree.last(&words[..], 0) } else { tree.first(&words[..], 0) };
        is_end(found, is_last, &words[..3]);
    });
}

/// States that the number found is the lowest, or the highest, of a set.
#[track_caller]
fn is_end(found: Option<usize>, is_last: bool, words: &[Symbol]) {
    match found {
        None => claim(!any(units(words, 0, 64 * words.len())), "the set is empty"),
        Some(number) => {
            claim(unit(words, number), "it is there");
            let (first, past) = if is_last { (number + 1, 64 * words.len()) } else { (0, number) };
            claim(!any(units(words, first, past)), "none is beyond it");
        }
    }
}

#[test]
fn the_first_number_is_removed_from_a_tree() {
    // One word, three words and a root: both ways of the code.
    prove("bits/tree.rs", [64, UNITS], &[], |bound| {
        let tree = Tree::new(bound);
        let before = if bound == 64 {
            let word = Symbol::any("word 0");
            assume(!word.equals(0));
            [word, zero(), zero(), word]
        } else {
            let words = tree_words();
            assume(!words[3].equals(0));
            words
        };
        let mut after = before;
        let (first, is_empty) = tree.pop_first(&mut after[..], 0);
        claim(unit(&before, first), "it was there");
        claim(!any(units(&before, 0, first)), "none was lower");
        agrees(is_empty, !any(units(&after, 0, bound)), "it is empty");
        if bound == UNITS {
            changed(&before, &after, first, false);
        } else {
            let rest = specify(|| {
                Symbol::from_bits(|i| if i == first { Bit::FALSE } else { before[0].bit(i) })
            });
            after[0].must_be(rest, "one number has gone");
        }
    });
}

/// Returns a bitmap of `words` words, arbitrary at three places and zero elsewhere, with its
/// storage; its head stands at the start, or at the lowest number.
fn bitmap(words: usize, places: [usize; 3], is_moved: bool) -> (Bitmap, Vec<Symbol>) {
    let units = 64 * words as u64;
    let mut storage = vec![zero(); Bitmap::storage_words(units) as usize];
    let mut bitmap = Bitmap::new(&mut storage, 0, units);
    for (place, word) in places.into_iter().zip(self::words()) {
        let is_zero = specify(|| word == zero());
        if !is_zero {
            bitmap.raise(&mut storage, place, zero(), word);
        }
    }
    if is_moved {
        bitmap.head_word(&mut storage);
    }
    (bitmap, storage)
}

/// A change of a bitmap of so many words, and which of its ends is looked for then.
#[derive(Clone, Copy)]
struct Change {
    words: usize,
    places: [usize; 3],
    is_moved: bool,
    first: usize,
    count: usize,
    inserts: bool,
    is_last: bool,
}

/// Returns changes of bitmaps with one level of summaries and with two: stretches within a
/// word, of one, and across one border or more.
fn changes() -> impl Iterator<Item = Change> {
    let small = [(5, 3), (128, 64), (60, 8), (30, 128)];
    let large = [(0, 64), (63 * 64 + 60, 8), (63 * 64, 128)];
    let small = small.into_iter().map(|stretch| (3, [0, 1, 2], stretch));
    let large = large.into_iter().map(|stretch| (65, [0, 63, 64], stretch));
    // From the last word below one summary to the second below the next.
    let across = [(66, [63, 64, 65], (63 * 64, 64))];
    small.chain(large).chain(across).flat_map(|(words, places, (first, count))| {
        (0..8).map(move |flags| Change {
            words,
            places,
            is_moved: flags & 1 != 0,
            first,
            count,
            inserts: flags & 2 != 0,
            is_last: flags & 4 != 0,
        })
    })
}

#[test]
fn a_bitmaps_levels_lead_to_its_content() {
    prove("bits/bitmap.rs", changes(), &[], |change| {
        let Change { words, places, is_moved, first, count, inserts, is_last } = change;
        let (mut bitmap, mut storage) = bitmap(words, places, is_moved);
        let before = storage.clone();
        let units = 64 * words;
        if inserts {
            assume(!any(self::units(&before, first, first + count)));
            bitmap.insert(&mut storage, first, count);
        } else {
            assume(all(self::units(&before, first, first + count)));
            bitmap.remove(&mut storage, first, count);
        }
        let is_changed = |i: usize| i >= first && i < first + count;
        let bit = |i: usize| if is_changed(i) { Bit::from(inserts) } else { unit(&before, i) };
        let content = (0..words).map(|word| Symbol::from_bits(|i| bit(64 * word + i)));
        let content: Vec<Symbol> = content.collect();
        agrees(bitmap.is_empty(&storage), !any(self::units(&content, 0, units)), "emptiness");
        let found = if is_last { bitmap.last(&storage) } else { bitmap.first(&mut storage) };
        is_end(found, is_last, &content);
        claim(all((0..units).map(|i| unit(&storage, i).is(unit(&content, i)))), "the content");
    });
}

fn zero() -> Symbol {
    Symbol::from_bits(|_| Bit::FALSE)
}

#[test]
fn a_bitmap_knows_what_comes_next() {
    prove("bits/bitmap.rs", [0, 1, 63, 64, 100, 191], &[], |from| {
        let (bitmap, storage) = bitmap(3, [0, 1, 2], false);
        agrees(bitmap.contains(&storage, from), unit(&storage, from), "membership");
        match bitmap.next(&storage, from) {
            None => claim(!any(units(&storage, from, UNITS)), "none comes next"),
            Some(next) => {
                claim(next >= from, "not before");
                claim(unit(&storage, next), "it is there");
                claim(!any(units(&storage, from, next)), "none comes before it");
            }
        }
    });
}

/// Returns a bitmap with arbitrary words, for what does not look at its levels.
fn flat() -> (Bitmap, [Symbol; 4]) {
    let [a, b, c] = words();
    let bitmap = Bitmap::new(&mut [0_u64; 4], 0, UNITS as u64);
    (bitmap, [a, b, c, zero()])
}

#[test]
fn a_bitmap_counts_ones_side_by_side() {
    prove("bits/bitmap.rs", [0, 1, 62, 63, 64, 65, 127, 128, 190], &[], |at| {
        let (bitmap, storage) = flat();
        let is_one = |i: usize| if i < UNITS { unit(&storage, i) } else { Bit::FALSE };
        let run = |from: usize, count: usize| all((from..from + count).map(is_one));
        let ahead = bitmap.ones_from(&storage, at);
        claim(ahead <= 64 && ahead + at <= UNITS, "as many as a word has");
        claim(run(at, ahead), "ones");
        claim(any([Bit::from(ahead == 64), !is_one(at + ahead)]), "a zero, or 64");
    });
}

#[test]
fn a_bitmap_counts_ones_before() {
    prove("bits/bitmap.rs", [0, 1, 63, 64, 65, 127, 128, 190, 192], &[], |past| {
        let (bitmap, storage) = flat();
        let behind = bitmap.ones_before(&storage, past);
        claim(behind <= 64 && behind <= past, "as many as a word has");
        claim(all(units(&storage, past - behind, past)), "ones");
        let ended = behind == 64 || behind == past;
        claim(
            any([
                Bit::from(ended),
                if ended { Bit::TRUE } else { !unit(&storage, past - behind - 1) },
            ]),
            "a zero",
        );
    });
}

#[test]
fn a_bitmap_finds_where_a_run_starts() {
    prove("bits/bitmap.rs", [0, 1, 63, 64, 65, 127, 128, 190, 192], &[], |past| {
        let (bitmap, storage) = flat();
        let start = bitmap.run_start(&storage, past);
        claim(all(units(&storage, start, past)), "ones down to the start");
        claim(if start == 0 { Bit::TRUE } else { !unit(&storage, start - 1) }, "a zero below");
    });
}

#[test]
fn a_bitmap_measures_a_run() {
    prove(
        "bits/bitmap.rs",
        [(0, 1), (0, 64), (1, 63), (5, 100), (63, 2), (64, 128), (190, 9)],
        &[],
        |(first, limit)| {
            let (bitmap, storage) = flat();
            let run = bitmap.run(&storage, first, limit);
            claim(run <= limit && first + run <= UNITS, "as far as it was asked");
            claim(all(units(&storage, first, first + run)), "ones");
            let ended = run == limit || first + run == UNITS;
            claim(if ended { Bit::TRUE } else { !unit(&storage, first + run) }, "then a zero");
        },
    );
}
