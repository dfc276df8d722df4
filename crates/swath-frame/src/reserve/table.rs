//! The reservations by the range of an object that they cover: a hash table in
//! words. (FreeBSD finds a reservation through a page's neighbours in its object;
//! here no list of an object's pages is needed.)
//!
//! A key is an object, the first page of an aligned range of it, and the level
//! that the range is aligned to. An entry says that the range is reserved, or
//! how many smaller ranges within it are: so a search from the top level down
//! ends where nothing is reserved. Open addressing with linear probes; an entry
//! that goes lets those behind it move up, so there are no tombstones and a
//! search ends at the first empty entry. The table has two entries for each
//! key it may ever hold: 1.5 probes on average for a key that is there, 2.5
//! for one that is not, if all of memory is reserved.
//!
//! In an entry's spare bits stands a **seal** of it, which any flipped bit breaks.

use crate::hardening::Hardening;

/// Words of an entry: object, first page, and level with value.
const ENTRY_WORDS: usize = 3;
/// In the third word, above the slot or the number: which of the two, the
/// level, and that the entry is not empty.
const ROOT: u64 = 1 << 32;
const LEVEL_SHIFT: u32 = 40;
const PRESENT: u64 = 1 << 63;
/// The seal lies above all but that.
const SEAL_SHIFT: u32 = 48;
const SEAL_BITS: u32 = 15;

/// The keys that a table has room for at least: one of its entries is empty even if one that was has
/// been overwritten, so that each search ends.
const KEYS_MIN: usize = 2;

/// The seal of an entry of these words, as it stands in the third.
fn seal(object: u64, index: u64, tag: u64) -> u64 {
    // Each bit of the three changes one bit.
    let all = object ^ index ^ tag & ((1 << SEAL_SHIFT) - 1);
    let folded = (0..64).step_by(SEAL_BITS as usize).fold(0, |seal, shift| seal ^ all >> shift);
    (!folded & ((1 << SEAL_BITS) - 1)) << SEAL_SHIFT
}

/// A range's entry in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// It is reserved as a whole, in this slot.
    Root(u32),
    /// It is not, but this many ranges of lower levels within it are.
    Below(u32),
}

/// An aligned range of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) object: u64,
    /// Its first page.
    pub(crate) index: u64,
    /// The level that it is aligned to.
    pub(crate) level: usize,
}

/// A map from [`Key`] to [`Entry`], in words that each method is given.
///
/// Invariants: an entry is empty exactly if its third word is 0; from a key's
/// home to its entry none is empty; at least half of the entries are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// The start of its words.
    at: usize,
    /// Number of its entries.
    len: usize,
}

impl Table {
    /// Words for `keys` keys at once.
    pub(crate) fn storage_words(keys: u64) -> Option<u64> {
        keys.max(KEYS_MIN as u64).checked_mul(2 * ENTRY_WORDS as u64)
    }

    /// The empty table for `keys` keys, in the words from `at` on, which are 0.
    pub(crate) fn new(at: usize, keys: usize) -> Self {
        Self { at, len: 2 * keys.max(KEYS_MIN) }
    }

    fn home(&self, key: Key) -> usize {
        let mut z = key.object.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (key.index + key.level as u64);
        z = (z ^ z >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z = (z ^ z >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((u128::from(z) * self.len as u128) >> 64) as usize
    }

    fn word(&self, entry: usize) -> usize {
        self.at + entry * ENTRY_WORDS
    }

    fn next(&self, entry: usize) -> usize {
        if entry + 1 == self.len { 0 } else { entry + 1 }
    }

    fn key(&self, words: &[u64], entry: usize) -> Option<Key> {
        let at = self.word(entry);
        let tag = words[at + 2];
        let level = (tag >> LEVEL_SHIFT) as usize & 0xff;
        (tag != 0).then(|| Key { object: words[at], index: words[at + 1], level })
    }

    /// The entry of `key`, or else the empty entry where it would stand.
    fn search(&self, words: &[u64], key: Key) -> Result<usize, usize> {
        let mut entry = self.home(key);
        loop {
            match self.key(words, entry) {
                None => return Err(entry),
                Some(other) if other == key => return Ok(entry),
                Some(_) => entry = self.next(entry),
            }
        }
    }

    /// Returns true if an entry is empty, or its seal is right.
    fn is_sealed(&self, words: &[u64], entry: usize) -> bool {
        let at = self.word(entry);
        let tag = words[at + 2];
        tag == 0 && words[at] | words[at + 1] == 0
            || tag >> SEAL_SHIFT == (PRESENT | seal(words[at], words[at + 1], tag)) >> SEAL_SHIFT
    }

    /// The empty entry at which a search of `key` ends if it is not there. In the checked tier the seals
    /// of all entries that such a search may read are looked at.
    ///
    /// # Errors
    /// The third word of one whose seal is broken.
    pub(crate) fn look<H: Hardening>(&self, words: &[u64], key: Key) -> Result<usize, usize> {
        let mut entry = self.home(key);
        for _ in 0..self.len {
            if H::CHECKED && !self.is_sealed(words, entry) {
                return Err(self.word(entry) + 2);
            }
            if words[self.word(entry) + 2] == 0 {
                return Ok(entry);
            }
            entry = self.next(entry);
        }
        Err(self.word(entry) + 2)
    }

    /// Visits the keys and values of all entries that are not empty, with the first word of each.
    ///
    /// # Errors
    /// The first word of an entry whose seal is broken.
    pub(crate) fn visit(
        &self,
        words: &[u64],
        visit: &mut dyn FnMut(Key, Entry, usize),
    ) -> Result<(), usize> {
        for entry in 0..self.len {
            if !self.is_sealed(words, entry) {
                return Err(self.word(entry));
            }
            if let Some(key) = self.key(words, entry) {
                visit(key, self.value(words, entry), self.word(entry));
            }
        }
        Ok(())
    }

    /// The value of `key`. O(1) expected.
    pub(crate) fn get(&self, words: &[u64], key: Key) -> Option<Entry> {
        let entry = self.search(words, key).ok()?;
        Some(self.value(words, entry))
    }

    /// The entry of `key`. O(1) expected.
    pub(crate) fn find(&self, words: &[u64], key: Key) -> Option<usize> {
        self.search(words, key).ok()
    }

    /// The value of an entry.
    pub(crate) fn value(&self, words: &[u64], entry: usize) -> Entry {
        let tag = words[self.word(entry) + 2];
        if tag & ROOT != 0 { Entry::Root(tag as u32) } else { Entry::Below(tag as u32) }
    }

    /// Sets the value of `key`. O(1) expected.
    pub(crate) fn set(&self, words: &mut [u64], key: Key, value: Entry) {
        let (Ok(entry) | Err(entry)) = self.search(words, key);
        self.put(words, entry, key, value);
    }

    /// Makes an entry that of `key`: its own, or the empty one at which its search ends.
    pub(crate) fn put(&self, words: &mut [u64], entry: usize, key: Key, value: Entry) {
        let entry = self.word(entry);
        words[entry] = key.object;
        words[entry + 1] = key.index;
        let value = match value {
            Entry::Root(slot) => ROOT | u64::from(slot),
            Entry::Below(ranges) => u64::from(ranges),
        };
        let tag = (key.level as u64) << LEVEL_SHIFT | value;
        words[entry + 2] = PRESENT | seal(key.object, key.index, tag) | tag;
    }

    /// Removes `key`, if it is there. O(1) expected.
    pub(crate) fn remove(&self, words: &mut [u64], key: Key) {
        if let Ok(entry) = self.search(words, key) {
            self.remove_entry(words, entry);
        }
    }

    /// Removes the key of an entry. O(1) expected.
    pub(crate) fn remove_entry(&self, words: &mut [u64], entry: usize) {
        let mut hole = entry;
        let mut entry = self.next(hole);
        while let Some(other) = self.key(words, entry) {
            // An entry may move up unless its home lies behind the hole.
            let distance = |from: usize| (entry + self.len - from) % self.len;
            if distance(self.home(other)) >= distance(hole) {
                let from = self.word(entry);
                words.copy_within(from..from + ENTRY_WORDS, self.word(hole));
                hole = entry;
            }
            entry = self.next(entry);
        }
        let at = self.word(hole);
        words[at..at + ENTRY_WORDS].fill(0);
    }

    /// Returns true if the entries behind one, up to the next that is empty, are sealed: when it goes, they
    /// stay or move up by what they say. O(1) expected.
    #[inline(always)]
    pub(crate) fn is_sealed_behind(&self, words: &[u64], entry: usize) -> bool {
        let next = self.next(entry);
        // Most often there is none.
        self.is_empty(words, next) || self.are_sealed(words, next)
    }

    #[inline(always)]
    fn is_empty(&self, words: &[u64], entry: usize) -> bool {
        words.get(self.word(entry) + 2) == Some(&0)
    }

    /// Returns true if the entries from one up to the next that is empty are sealed.
    #[inline(never)]
    fn are_sealed(&self, words: &[u64], mut entry: usize) -> bool {
        // No more than there are, whatever they say.
        for _ in 0..self.len {
            if self.is_empty(words, entry) {
                return true;
            }
            if !self.is_sealed(words, entry) {
                return false;
            }
            entry = self.next(entry);
        }
        false
    }

    /// Visits all keys; whether each can be found. O(len).
    pub(crate) fn check(
        &self,
        words: &[u64],
        visit: &mut dyn FnMut(Key, Entry),
    ) -> Result<(), &'static str> {
        let mut used = 0;
        for entry in 0..self.len {
            let Some(key) = self.key(words, entry) else { continue };
            if self.search(words, key) != Ok(entry) {
                return Err("a key of the table is not found where it stands");
            }
            used += 1;
            visit(key, self.value(words, entry));
        }
        if 2 * used > self.len {
            return Err("the table holds more keys than it is made for");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::BTreeMap;
    use std::vec;

    /// A small full table, where every removal moves entries and chains wrap
    /// around its end.
    #[test]
    fn equals_a_map_operation_by_operation() {
        let mut z = 7_u64;
        let mut below = |bound: u64| {
            z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (z >> 33) % bound
        };
        for keys in [1, 2, 3, 8, 13] {
            let mut words = vec![0; Table::storage_words(keys).unwrap() as usize + 5];
            words[..5].fill(u64::MAX);
            let table = Table::new(5, keys as usize);
            let mut model = BTreeMap::new();
            for _ in 0..4000 {
                let key = (below(3), below(4) << 1, below(2) as usize);
                let of = |(object, index, level)| Key { object, index, level };
                if below(2) == 0 {
                    table.remove(&mut words, of(key));
                    model.remove(&key);
                } else if model.len() < keys as usize || model.contains_key(&key) {
                    let value = below(1 << 32) as u32;
                    let entry = [Entry::Root, Entry::Below][below(2) as usize];
                    let value = entry(value);
                    table.set(&mut words, of(key), value);
                    model.insert(key, value);
                }
                let mut seen = BTreeMap::new();
                table
                    .check(&words, &mut |key, value| {
                        assert_eq!(table.get(&words, key), Some(value));
                        seen.insert((key.object, key.index, key.level), value);
                    })
                    .unwrap();
                assert_eq!(seen, model);
                assert_eq!(table.get(&words, of(key)), model.get(&key).copied());
            }
        }
    }
}
