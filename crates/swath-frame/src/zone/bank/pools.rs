//! Adaptive-Buddy (section IV-D): whole banks in three pools.
//!
//! Unmovable requests are served from POOL_KERNEL, then open a bank of POOL_OFFLINE,
//! then take the bank of POOL_USER with the most free frames, which moves to
//! POOL_KERNEL. Movable ones are served from POOL_USER, then open a bank of
//! POOL_OFFLINE, then borrow from POOL_KERNEL, where the bank stays. A bank
//! that is wholly free goes to POOL_OFFLINE.
//!
//! The paper merges the free lists of a pool's banks, which costs as many steps
//! as a bank has blocks whenever one moves (its worst case: 20 times the
//! average), and it looks through all banks for the one with the most free
//! frames. Here a bank keeps its blocks, and a pool knows each bank by two
//! things, so that moving one is a few words whatever is in it:
//!
//! ```text
//!            order of the bank's largest block
//!             0     1     ...   9     10
//!  full      -+-----+-----+-----+-----+-       of a pool: a list of banks in
//!   1/32      |  4  |     |     |     |        each field, a word of bits in
//!   2/32      |     | 7>2 |     |     |        each column (fields not empty),
//!   ...       |     |     |  5  |  1  |        and where banks are chosen by
//!  31/32      |     |     |     |  3  |        place, each column's banks as a set
//!  free frames of the bank
//! ```
//!
//! The bank for a request of order o is in the columns from o on: the fullest
//! or emptiest of them takes one look at each column. A bank moves to another
//! field when its largest block changes or its free frames cross a 32nd of the
//! bank; "most free frames" is meant up to such a 32nd.
//!
//! Single frames come from one [word](crate::zone::bank::open) of a pool's bank until it is
//! used up, at most 64 of them, even if another bank would be chosen by then. Before
//! a bank changes from users to the kernel, and before a larger request goes beyond
//! its pool, open words are closed: which pool serves does not depend on them.
//!
//! # What it costs
//! With C = top order + 1 columns, B banks and L = 1 + (levels of 64) for B
//! (1 up to 64 banks, 2 up to 4096, at most 3), choosing and moving a bank is
//! O(C·L); no other operation depends on B. While a pool's current bank serves,
//! choosing is O(1).

use crate::bits::store::{AsKept, Keep, Kept};
use crate::bits::tree::Tree;
use crate::zone::bank::blocks::{BankBlocks, NONE, ORDERS, half};
use crate::zone::bank::open::{Record, Taken};
use crate::zone::bank::placement::{ABSENT, KERNEL, OFFLINE, POOLS, Pick, Placement, USER};
use crate::zone::bank::ranges::BankPool;
use crate::zone::bank::records::Links;

/// Fields of a column.
const BUCKETS: usize = 32;

/// A bank's note: its pool, one more than its largest order (0: it serves
/// nothing), its bucket; or that it is in no field whatever it has.
const POOL_MASK: u32 = 3;
const LARGEST_SHIFT: u32 = 2;
const BUCKET_SHIFT: u32 = 8;
const APART: u32 = 1 << 16;

/// The bank of a pool that serves next, when its current one cannot or has to
/// give way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BankPreference {
    /// The bank last allocated from or freed to, as the head of a free list
    /// would have it; then one whose largest block is the smallest that is
    /// large enough. This is nearest to the paper's merged lists.
    Recent,
    /// The bank nearest to the pool's end of the zone: the lowest for the
    /// kernel, the highest for users. It stays until it cannot serve or its
    /// field changes.
    Outermost,
    /// The bank with the fewest free frames, up to a 32nd of a bank, that can
    /// serve: the others empty themselves. It stays until it cannot serve or
    /// its field changes.
    Fullest,
}

/// The preference of each pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PoolPolicy {
    /// For unmovable and reclaimable memory.
    pub kernel: BankPreference,
    /// For movable memory.
    pub user: BankPreference,
}

impl PoolPolicy {
    /// The paper's pools: free lists without regard to banks.
    pub const PAPER: Self = Self { kernel: BankPreference::Recent, user: BankPreference::Recent };
    /// Fullest banks first: this leaves the most banks offline.
    pub const PACKED: Self =
        Self { kernel: BankPreference::Fullest, user: BankPreference::Fullest };
}

impl Default for PoolPolicy {
    fn default() -> Self {
        Self::PACKED
    }
}

/// Counts of the moves of banks between pools, and of fallbacks without a move.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PoolMoves {
    /// Banks from POOL_OFFLINE to POOL_KERNEL.
    pub opened_kernel: u64,
    /// Banks from POOL_OFFLINE to POOL_USER.
    pub opened_user: u64,
    /// Banks from POOL_KERNEL to POOL_OFFLINE.
    pub rested_kernel: u64,
    /// Banks from POOL_USER to POOL_OFFLINE.
    pub rested_user: u64,
    /// Banks from POOL_USER to POOL_KERNEL: unmovable requests that found no other.
    pub stolen: u64,
    /// Movable requests that POOL_KERNEL served.
    pub borrowed: u64,
}

/// POOL_KERNEL, POOL_USER and POOL_OFFLINE.
///
/// Invariants: a bank with a free frame that is not isolated is in exactly the
/// field of its pool, its largest block and its bucket, as its note
/// says, and in the column's set if the pool has sets (POOL_OFFLINE, and one whose
/// preference is outermost); a column's bits are its lists that are not empty, and a
/// pool's its columns; POOL_OFFLINE has the
/// wholly free banks that do not cross, and no others; `current` are banks of
/// their pools; `free` are the pools' free frames but for those of open words.
#[derive(Clone, Copy, Debug)]
pub struct PoolPlacement {
    pub(crate) policy: PoolPolicy,
    /// The fields that are not empty, column by column.
    fields: [[u32; ORDERS]; 2],
    /// The columns of each pool that are not empty.
    serving: [u32; 3],
    current: [u32; 2],
    /// The fourth is for banks that are in no pool: 0.
    pub(crate) free: [u64; 4],
    pub(crate) moves: PoolMoves,
    columns: usize,
    /// A bank's free frames, shifted by this, are its bucket.
    bucket_shift: u32,
    /// The shape of a set of banks, its size in words, and where the first is.
    set: Tree,
    set_words: usize,
    sets: usize,
    /// The start of the halves with the lists' heads.
    heads: usize,
}

impl PoolPlacement {
    /// Empty pools.
    pub const fn new(policy: PoolPolicy) -> Self {
        Self {
            policy,
            fields: [[0; ORDERS]; 2],
            serving: [0; 3],
            current: [NONE; 2],
            free: [0; 4],
            moves: PoolMoves {
                opened_kernel: 0,
                opened_user: 0,
                rested_kernel: 0,
                rested_user: 0,
                stolen: 0,
                borrowed: 0,
            },
            columns: 0,
            bucket_shift: 0,
            set: Tree::NONE,
            set_words: 0,
            sets: 0,
            heads: 0,
        }
    }

    fn preference(&self, pool: usize) -> BankPreference {
        if pool == KERNEL { self.policy.kernel } else { self.policy.user }
    }

    /// Returns true if a pool's banks are kept in sets by number, too: where the lowest or
    /// the highest is asked for.
    #[inline(always)]
    fn has_sets(&self, pool: usize) -> bool {
        pool == OFFLINE || self.preference(pool) == BankPreference::Outermost
    }

    #[inline(always)]
    fn head(&self, pool: usize, order: usize, bucket: usize) -> usize {
        self.heads + (pool * self.columns + order) * BUCKETS + bucket
    }

    fn set_at(&self, pool: usize, order: usize) -> usize {
        self.sets + (pool * self.columns + order) * self.set_words
    }

    /// Returns a bank's note but for its pool.
    #[inline(always)]
    fn key(&self, record: Record) -> u32 {
        // A bank that is wholly free and stays (it crosses) has bucket 32.
        let bucket = (record.filed() >> (self.bucket_shift & 31)).min(BUCKETS as u32 - 1);
        (32 - record.classes().leading_zeros()) << LARGEST_SHIFT | bucket << BUCKET_SHIFT
    }

    /// Returns true if a bank with `free` frames belongs in another bucket with
    /// `more`.
    #[inline(always)]
    fn crosses_bucket(&self, free: u32, more: u32) -> bool {
        (free ^ free.wrapping_add(more)) >> (self.bucket_shift & 31) != 0
    }

    /// Notes a bank, which has this record and these links, in its field of a pool.
    #[inline(always)]
    fn link<S: Keep + ?Sized>(
        &mut self,
        b: &BankBlocks,
        s: &mut S,
        bank: usize,
        (record, links): (Record, Links),
        pool: usize,
    ) {
        let key = self.key(record);
        BankBlocks::change_note(s, bank, record, pool as u32 | key);
        let Some((order, bucket)) = field(key) else { return };
        self.serving[pool] |= 1 << order;
        if self.has_sets(pool) {
            self.set.insert(&mut AsKept(&mut *s), self.set_at(pool, order), bank);
        }
        if pool != OFFLINE {
            b.link(s, self.head(pool, order, bucket), bank, links);
            self.fields[pool][order] |= 1 << bucket;
        }
    }

    /// Takes a bank, which has this record and these links, out of its field.
    #[inline(always)]
    fn unlink<S: Keep + ?Sized>(
        &mut self,
        b: &BankBlocks,
        s: &mut S,
        bank: usize,
        (record, links): (Record, Links),
    ) {
        let note = record.note();
        let Some((order, bucket)) = field(note) else { return };
        let pool = (note & POOL_MASK) as usize;
        let mut is_last = false;
        if self.has_sets(pool) {
            is_last = self.set.remove(&mut AsKept(&mut *s), self.set_at(pool, order), bank);
        }
        if pool != OFFLINE && b.unlink(s, self.head(pool, order, bucket), bank, links) {
            self.fields[pool][order] &= !(1 << bucket);
            is_last = self.fields[pool][order] == 0;
        }
        if is_last {
            self.serving[pool] &= !(1 << order);
        }
    }

    /// Moves a bank to the field that it belongs to now, in pool `to`.
    #[inline(never)]
    fn requeue<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize, to: usize) {
        let known = b.linked_record(s, bank);
        self.leave(b, s, bank, known, to);
        self.link(b, s, bank, known, to);
    }

    /// Takes a bank, which has this record and these links, out of its field, towards pool `to`.
    #[inline(always)]
    fn leave<S: Keep + ?Sized>(
        &mut self,
        b: &BankBlocks,
        s: &mut S,
        bank: usize,
        known: (Record, Links),
        to: usize,
    ) {
        let from = (known.0.note() & POOL_MASK) as usize;
        self.unlink(b, s, bank, known);
        let is_current = self.current.get(from) == Some(&(bank as u32));
        if is_current && (from != to || self.preference(from) != BankPreference::Recent) {
            self.current[from] = NONE;
        }
        if from != to {
            let free = u64::from(known.0.filed());
            self.lose(from, free);
            self.gain(to, free);
            self.count_move(from, to);
        }
    }

    /// Counts frames that a pool has got. What is not its own by a flipped bit may lead below 0.
    #[inline(always)]
    fn gain(&mut self, pool: usize, frames: u64) {
        self.free[pool] = self.free[pool].wrapping_add(frames);
    }

    /// Counts frames that a pool has lost.
    #[inline(always)]
    fn lose(&mut self, pool: usize, frames: u64) {
        self.free[pool] = self.free[pool].wrapping_sub(frames);
    }

    fn count_move(&mut self, from: usize, to: usize) {
        match (from, to) {
            (OFFLINE, KERNEL) => self.moves.opened_kernel += 1,
            (OFFLINE, USER) => self.moves.opened_user += 1,
            (KERNEL, OFFLINE) => self.moves.rested_kernel += 1,
            (USER, OFFLINE) => self.moves.rested_user += 1,
            (USER, KERNEL) => self.moves.stolen += 1,
            _ => {}
        }
    }

    /// The columns of a pool, from `order` on, that are not empty.
    #[inline(always)]
    fn serving(&self, pool: usize, order: u32) -> impl Iterator<Item = usize> + use<> {
        let mut rest = self.serving[pool] >> order << order;
        core::iter::from_fn(move || {
            let column = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (column < 32).then_some(column)
        })
    }

    /// The bank of a pool (not POOL_OFFLINE) that is to serve `order`. O(C·L).
    fn pick<S: Kept + ?Sized>(&self, s: &S, pool: usize, order: u32) -> Option<usize> {
        let fields = &self.fields[pool];
        let order = match self.preference(pool) {
            BankPreference::Outermost => return self.outermost(s, pool, order, pool),
            BankPreference::Fullest => return self.fullest(s, pool, order),
            BankPreference::Recent => self.serving(pool, order).next()?,
        };
        let bucket = fields[order].trailing_zeros() as usize;
        Some(half(s, self.head(pool, order, bucket)) as usize)
    }

    /// The bank of a pool (not POOL_OFFLINE) with the fewest free frames that
    /// serves `order`. O(C).
    pub(crate) fn fullest<S: Kept + ?Sized>(
        &self,
        s: &S,
        pool: usize,
        order: u32,
    ) -> Option<usize> {
        let fields = &self.fields[pool];
        let order = self.serving(pool, order).min_by_key(|&o| fields[o].trailing_zeros())?;
        let bucket = fields[order].trailing_zeros() as usize;
        Some(half(s, self.head(pool, order, bucket)) as usize)
    }

    /// The lowest bank of a pool that serves `order` or, for users, the highest.
    fn outermost<S: Kept + ?Sized>(
        &self,
        s: &S,
        pool: usize,
        order: u32,
        owner: usize,
    ) -> Option<usize> {
        let sets = self.serving(pool, order).map(|order| self.set_at(pool, order));
        if owner == KERNEL {
            sets.filter_map(|set| self.set.first(&AsKept(s), set)).min()
        } else {
            sets.filter_map(|set| self.set.last(&AsKept(s), set)).max()
        }
    }

    /// The bank of POOL_USER with the most free frames that serves `order`. O(C).
    fn emptiest<S: Kept + ?Sized>(&self, s: &S, order: u32) -> Option<usize> {
        let fields = &self.fields[USER];
        let order = self.serving(USER, order).max_by_key(|&order| fields[order].ilog2())?;
        let bucket = fields[order].ilog2() as usize;
        Some(half(s, self.head(USER, order, bucket)) as usize)
    }

    #[inline(never)]
    fn choose_next<S: Kept + ?Sized>(&mut self, s: &S, pool: usize, order: u32) -> Option<usize> {
        let bank = self.pick(s, pool, order)?;
        self.current[pool] = bank as u32;
        Some(bank)
    }

    /// A bank of another pool, which moves to this one unless a user borrows it.
    #[inline(never)]
    fn fall_back<S: Keep + ?Sized>(
        &mut self,
        b: &mut BankBlocks,
        s: &mut S,
        order: u32,
        movable: bool,
    ) -> Option<(usize, Pick)> {
        let pool = if movable { USER } else { KERNEL };
        // A word that is open serves single frames, but no larger block.
        if order > 0
            && self.close_all(b, s)
            && let Some(bank) =
                self.at_hand(b, s, order, movable).or_else(|| self.choose_next(s, pool, order))
        {
            return Some((bank, Pick::Open));
        }
        let bank = if let Some(bank) = self.outermost(s, OFFLINE, order, pool) {
            bank
        } else if movable {
            let bank = self.pick(s, KERNEL, order)?;
            self.moves.borrowed += 1;
            return Some((bank, Pick::Smallest));
        } else {
            self.close_all(b, s);
            self.emptiest(s, order)?
        };
        // It is in no field until `took` finds one for what will be left.
        let known = b.linked_record(s, bank);
        self.leave(b, s, bank, known, pool);
        BankBlocks::change_note(s, bank, known.0, pool as u32);
        self.current[pool] = bank as u32;
        Some((bank, Pick::Open))
    }

    /// Closes the open words, so that the fields say all; whether there were any.
    pub(crate) fn close_all<S: Keep + ?Sized>(&mut self, b: &mut BankBlocks, s: &mut S) -> bool {
        let mut closed = false;
        for slot in 0..2 {
            if let Some((bank, frames)) = b.close(s, slot) {
                self.freed(b, s, bank, |s| b.known_record(s, bank), frames);
                closed = true;
            }
        }
        closed
    }

    /// The bank of POOL_USER that follows in the order of
    /// [`next_candidate`](crate::zone::bank::AdaptiveBuddy::next_candidate).
    pub(crate) fn candidate<S: Kept + ?Sized>(
        &self,
        b: &BankBlocks,
        s: &S,
        after: Option<usize>,
    ) -> Option<usize> {
        // Every field at or below `bucket`; in its own row only columns below `order`.
        let (bucket, order) = match after {
            None => (BUCKETS - 1, self.columns),
            Some(bank) => {
                let note = if bank < b.count { b.note(s, bank) } else { APART };
                let (order, bucket) = field(note)?;
                if note & POOL_MASK != USER as u32 {
                    return None;
                }
                let next = b.next(s, bank);
                if next != NONE {
                    return Some(next as usize);
                }
                (bucket, order)
            }
        };
        let fields = &self.fields[USER];
        let row = (0..order).rev().find(|&order| fields[order] >> bucket & 1 == 1);
        let below = (1 << bucket) - 1;
        let (bucket, order) = match row {
            Some(order) => (bucket, order),
            None => {
                let rows = (0..self.columns).filter(|&order| fields[order] & below != 0);
                let order = rows.max_by_key(|&order| (fields[order] & below).ilog2())?;
                ((fields[order] & below).ilog2() as usize, order)
            }
        };
        Some(half(s, self.head(USER, order, bucket)) as usize)
    }

    fn check_bank<S: Kept + ?Sized>(
        &self,
        b: &BankBlocks,
        s: &S,
        bank: usize,
    ) -> Result<(), &'static str> {
        let note = b.note(s, bank);
        let pool = (note & POOL_MASK) as usize;
        let apart = b.is_isolated(s, bank) || b.frames_of(s, bank) == 0;
        if (note & APART != 0) != apart || (pool == ABSENT) != (b.frames_of(s, bank) == 0) {
            return Err("a bank without frames or isolated is in a pool, or another is not");
        }
        if !apart && note != pool as u32 | self.key(b.known_record(s, bank)) {
            return Err("a bank's note differs from what it has");
        }
        if !apart && b.can_rest(s, bank) != (pool == OFFLINE) {
            return Err("POOL_OFFLINE has a bank in use, or another pool a free one");
        }
        let own = field(note).map(|(order, _)| (pool, order));
        for pool in [KERNEL, USER, OFFLINE] {
            for order in 0..self.columns {
                let held = self.set.contains(&AsKept(s), self.set_at(pool, order), bank);
                if held != (self.has_sets(pool) && own == Some((pool, order))) {
                    return Err("a bank is in a set that it does not belong to, or not in its own");
                }
            }
        }
        Ok(())
    }
}

/// The column and the bucket of a note, if the bank serves anything.
#[inline(always)]
const fn field(note: u32) -> Option<(usize, usize)> {
    let largest = note >> LARGEST_SHIFT & 0x3f;
    if largest == 0 || note & APART != 0 {
        return None;
    }
    Some((largest as usize - 1, (note >> BUCKET_SHIFT & 0xff) as usize))
}

impl Default for PoolPlacement {
    fn default() -> Self {
        Self::new(PoolPolicy::default())
    }
}

impl Placement for PoolPlacement {
    const BY_ORDER: bool = true;
    const SEARCHES_APART: bool = true;

    /// Three sets of banks and two lists' columns for each order.
    fn words(&self, banks: usize, top: u32) -> usize {
        let columns = top as usize + 1;
        columns * (3 * Tree::words(banks) + 2 * BUCKETS / 2)
    }

    fn build(&mut self, b: &BankBlocks, s: &mut [u64], at: usize) {
        let columns = b.top as usize + 1;
        let set_words = Tree::words(b.count);
        let sets_words = 3 * columns * set_words;
        *self = Self {
            columns,
            bucket_shift: b.bank_frames.next_power_of_two().ilog2().saturating_sub(5),
            set: Tree::new(b.count),
            set_words,
            sets: at,
            heads: (at + sets_words) * 2,
            ..Self::new(self.policy)
        };
        s[at..at + sets_words].fill(0);
        s[at + sets_words..at + sets_words + columns * BUCKETS].fill(u64::MAX);
        for bank in (0..b.count).rev() {
            if b.frames_of(s, bank) == 0 {
                b.set_note(s, bank, ABSENT as u32 | APART);
                continue;
            }
            let pool = if b.can_rest(s, bank) { OFFLINE } else { KERNEL };
            let known = b.linked_record(s, bank);
            self.link(b, s, bank, known, pool);
            self.free[pool] += u64::from(b.filed_of(s, bank));
        }
    }

    fn stop(&mut self) {
        (self.serving, self.current) = ([0; 3], [NONE; 2]);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.sets = self.sets - from + to;
        self.heads = self.heads - from * 2 + to * 2;
    }

    #[inline(always)]
    fn at_hand<S: Kept + ?Sized>(
        &self,
        b: &BankBlocks,
        s: &S,
        order: u32,
        movable: bool,
    ) -> Option<usize> {
        let current = self.current[if movable { USER } else { KERNEL }];
        let serves = current != NONE && b.serves(s, current as usize, order);
        serves.then_some(current as usize)
    }

    #[inline(always)]
    fn choose<S: Keep + ?Sized>(
        &mut self,
        b: &mut BankBlocks,
        s: &mut S,
        order: u32,
        movable: bool,
    ) -> Option<(usize, Pick)> {
        let pool = if movable { USER } else { KERNEL };
        match self.choose_next(s, pool, order) {
            Some(bank) => Some((bank, Pick::Open)),
            None => self.fall_back(b, s, order, movable),
        }
    }

    /// Always: the word lies in a bank of the pool, and is soon used up.
    #[inline(always)]
    fn keeps(&self, _bank: usize, _movable: bool) -> bool {
        true
    }

    #[inline(always)]
    fn allocated<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, taken: &Taken) -> bool {
        let &Taken { bank, filed, reordered, record } = taken;
        let note = record.note();
        let pool = (note & POOL_MASK) as usize;
        self.lose(pool, filed.into());
        // A bank that has just come to its pool is in no field yet.
        let moves = if reordered || note & !POOL_MASK == 0 {
            note & !POOL_MASK != self.key(record)
        } else {
            self.crosses_bucket(record.filed(), filed)
        };
        if moves {
            self.requeue(b, s, bank, pool);
        }
        moves
    }

    #[inline]
    fn freed<S: Keep + ?Sized>(
        &mut self,
        b: &BankBlocks,
        s: &mut S,
        bank: usize,
        record: impl FnOnce(&S) -> Record,
        frames: u32,
    ) {
        let record = record(s);
        let note = record.note();
        if note & APART != 0 {
            return;
        }
        let pool = (note & POOL_MASK) as usize;
        self.gain(pool, frames.into());
        if record.is_whole(0) {
            return self.requeue(b, s, bank, OFFLINE);
        }
        if note & !POOL_MASK != self.key(record) {
            self.requeue(b, s, bank, pool);
        }
        if self.preference(pool) == BankPreference::Recent {
            self.current[pool & 1] = bank as u32;
        }
    }

    #[inline(always)]
    fn moves(&self, record: Record, frames: u32) -> bool {
        self.crosses_bucket(record.filed().wrapping_sub(frames), frames)
    }

    #[inline(always)]
    fn freed_some(&mut self, bank: usize, record: Record, frames: u32) {
        let pool = (record.note() & POOL_MASK) as usize;
        self.gain(pool, frames.into());
        if self.preference(pool) == BankPreference::Recent {
            self.current[pool & 1] = bank as u32;
        }
    }

    fn isolate<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize) {
        let known = b.linked_record(s, bank);
        let pool = known.0.note() & POOL_MASK;
        self.unlink(b, s, bank, known);
        BankBlocks::change_note(s, bank, known.0, pool | APART);
        self.lose(pool as usize, known.0.filed().into());
        for current in &mut self.current {
            if *current == bank as u32 {
                *current = NONE;
            }
        }
    }

    fn rejoin<S: Keep + ?Sized>(&mut self, b: &BankBlocks, s: &mut S, bank: usize) {
        let known = b.linked_record(s, bank);
        let from = (known.0.note() & POOL_MASK) as usize;
        let to = if b.can_rest(s, bank) { OFFLINE } else { from };
        self.link(b, s, bank, known, to);
        self.gain(to, known.0.filed().into());
        self.count_move(from, to);
    }

    fn pool<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S, bank: usize) -> Option<BankPool> {
        POOLS[(b.note(s, bank) & POOL_MASK) as usize]
    }

    fn largest<S: Kept + ?Sized>(&self, _b: &BankBlocks, _s: &S) -> Option<u32> {
        self.serving.iter().fold(0, |all, pool| all | pool).checked_ilog2()
    }

    fn check<S: Kept + ?Sized>(&self, b: &BankBlocks, s: &S) -> Result<(), &'static str> {
        let mut free = [0; 4];
        let mut serving = 0;
        for bank in 0..b.count {
            self.check_bank(b, s, bank)?;
            let note = b.note(s, bank);
            if note & APART == 0 {
                free[(note & POOL_MASK) as usize] += u64::from(b.filed_of(s, bank));
            }
            let in_field = field(note).is_some() && note & POOL_MASK != OFFLINE as u32;
            serving += usize::from(in_field);
        }
        if free != self.free {
            return Err("a pool's count of free frames is wrong");
        }
        let mut linked = 0;
        for pool in [KERNEL, USER] {
            for (order, bucket) in (0..self.columns).flat_map(|o| (0..BUCKETS).map(move |b| (o, b)))
            {
                let first = half(s, self.head(pool, order, bucket));
                if (first == NONE) == (self.fields[pool][order] >> bucket & 1 == 1) {
                    return Err("a column's bits differ from its lists");
                }
                let mut before = NONE;
                // A list that runs in a circle ends here too.
                for bank in b.list(s, first).take(b.count + 1) {
                    let note = b.note(s, bank);
                    if field(note) != Some((order, bucket)) || note & POOL_MASK != pool as u32 {
                        return Err("a bank is in a field that it does not belong to");
                    }
                    if b.previous(s, bank) != before {
                        return Err("a field's links differ");
                    }
                    before = bank as u32;
                    linked += 1;
                }
            }
            let current = self.current[pool];
            if current != NONE && b.note(s, current as usize) & (POOL_MASK | APART) != pool as u32 {
                return Err("a pool's current bank has left it");
            }
        }
        if linked != serving {
            return Err("a bank is in no field");
        }
        for pool in [KERNEL, USER, OFFLINE] {
            for order in 0..self.columns {
                let set = self.set_at(pool, order);
                if !self.set.check(&AsKept(s), set, b.count) {
                    return Err("the levels of a set of banks differ");
                }
                let is_empty = match self.fields.get(pool) {
                    Some(fields) => fields[order] == 0,
                    None => Tree::len(&AsKept(s), set, b.count) == 0,
                };
                if is_empty == (self.serving[pool] >> order & 1 == 1) {
                    return Err("the columns of a pool differ from its sets");
                }
            }
        }
        Ok(())
    }
}
