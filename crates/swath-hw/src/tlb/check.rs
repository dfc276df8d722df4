//! The invariants of a [`Tlb`], walked.

use swath_arch::Vpn;

use crate::tlb::array::{Entry, NIL, NO_PAGE, Tlb};
use crate::tlb::fill::{EntryKind, PAGE_BITS};
use crate::tlb::geometry::Replacement;

impl Tlb {
    /// Walks every invariant of the struct. O(entries × ways + buckets).
    ///
    /// # Errors
    /// The invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        let ways = self.geometry.ways;
        let mut population = [0u32; PAGE_BITS as usize + 1];
        let (mut anchors, mut nodes) = (0, 0);
        for (set, &head) in self.heads.iter().enumerate() {
            let (mut index, mut seen_empty) = (head, false);
            for _ in 0..ways {
                let entry = self.entries.get(index as usize).ok_or("ring leaves the entries")?;
                if (index / ways) as usize != set {
                    return Err("ring leaves the set");
                }
                if self.entries[entry.older as usize].newer != index {
                    return Err("ring links disagree");
                }
                if entry.len == 0 {
                    seen_empty = true;
                } else {
                    if seen_empty {
                        return Err("an empty entry is newer than a valid one");
                    }
                    let last = entry.start + entry.len - 1;
                    let class = u32::from(entry.class);
                    let in_set = |page| self.set_of(page, entry.kind(), class) == set;
                    if self.geometry.sets > 1 && !(in_set(entry.start) && in_set(last)) {
                        return Err("an entry lies outside its set");
                    }
                    match entry.kind() {
                        EntryKind::Regular => {
                            let class = entry.len.next_power_of_two().trailing_zeros();
                            if u32::from(entry.class) != class {
                                return Err("wrong class");
                            }
                            population[usize::from(entry.class)] += 1;
                        }
                        EntryKind::Anchor => {
                            if entry.start >> self.distance != last >> self.distance {
                                return Err("an anchor entry exceeds the distance");
                            }
                            anchors += 1;
                        }
                    }
                    let buckets = self.nodes(u32::from(entry.class), entry.start, entry.len);
                    if entry.buckets != buckets {
                        return Err("an entry is in the wrong chain");
                    }
                    nodes += 1 + usize::from(buckets[1] != NIL);
                    if !self.chained(buckets[0], 2 * index)
                        || buckets[1] != NIL && !self.chained(buckets[1], 2 * index + 1)
                    {
                        return Err("an entry is missing from its chain");
                    }
                }
                index = entry.older;
            }
            if index != head {
                return Err("ring does not close");
            }
            let base = set * ways as usize;
            let all = &self.entries[base..base + ways as usize];
            for (i, a) in all.iter().enumerate() {
                let window = |entry: &Entry| entry.start >> self.distance;
                for b in &all[i + 1..] {
                    let nest = a.class != b.class && !(self.is_cut(a) && self.is_cut(b));
                    let kinds = a.len != 0 && b.len != 0 && a.kind() == b.kind() && !nest;
                    let anchors = a.kind() == EntryKind::Anchor && window(a) == window(b);
                    if kinds && (a.pages().overlaps(b.pages()) || anchors) {
                        return Err("two entries match one page");
                    }
                }
            }
        }
        let mut chained = 0;
        for &bucket in &self.buckets {
            let mut node = bucket;
            while node != NIL && chained <= nodes {
                chained += 1;
                node = self.entries[(node >> 1) as usize].chain[(node & 1) as usize];
            }
        }
        if chained != nodes {
            return Err("a chain holds a node of no entry");
        }
        if population != self.population || anchors != self.anchors {
            return Err("population is miscounted");
        }
        let classes = population.iter().rev().fold(0, |bits, &n| bits << 1 | u64::from(n != 0));
        if classes != self.classes {
            return Err("class bits disagree with the population");
        }
        if self.last_page != NO_PAGE {
            if self.peek(Vpn::new(self.last_page)) != Some(self.last) {
                return Err("the last hit is not what a search finds");
            }
            let set = self.set_of(self.last_page, self.last.kind, self.last_class.into());
            let newest = self.entries[self.heads[set] as usize];
            if self.replacement == Replacement::Lru && !newest.covers(self.last_page) {
                return Err("the last hit is not the most recently used");
            }
        }
        Ok(())
    }

    fn chained(&self, bucket: u32, node: u32) -> bool {
        let mut at = self.buckets[bucket as usize];
        let mut steps = 0;
        while at != NIL && steps <= 2 * self.entries.len() {
            if at == node {
                return true;
            }
            at = self.entries[(at >> 1) as usize].chain[(at & 1) as usize];
            steps += 1;
        }
        false
    }
}
