//! The programs of a talk's benchmarks, as streams of steps.
//!
//! They are those of *Transparent Superpages Support for FreeBSD on ARM*,
//! section "Validation and benchmarking": [`Gups`], the figures of LMbench
//! ([`Sweep`], [`Copy`](struct@Copy), [`RandomLatency`]), [`Forkbomb`] and the TLB-miss
//! experiment ([`MissLoop`]). What each does is taken from its own published
//! description, named there.
//!
//! Each is a formula of its parameters and, where there is chance, of a seed.
//! Each maps its memory, touches it, marks what is measured with
//! [`Action::Begin`] and [`Action::End`], and exits. A step costs O(1).

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use swath_arch::{BASE_PAGE_BYTES, PageRange, VirtAddr};

use crate::papers::superpages::process::{Action, Step};
use swath_trace::access::{AccessKind, MapBacking, MapProtection, TraceEvent, pages_of};

/// A program's parameters that make no program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{program}: {what}")]
pub struct ProgramError {
    /// The program.
    pub program: &'static str,
    /// The fault.
    pub what: &'static str,
}

/// The most processes that a [`Forkbomb`] may make.
pub const PROCESSES_MAX: u64 = 1 << 20;

const PAGES_MAX: u64 = 1 << 36;

fn check(program: &'static str, rules: &[(bool, &'static str)]) -> Result<(), ProgramError> {
    match rules.iter().find(|(holds, _)| !holds) {
        Some(&(_, what)) => Err(ProgramError { program, what }),
        None => Ok(()),
    }
}

/// The pages of `len_bytes` from `start` on; `program` is to blame.
fn region(
    program: &'static str,
    start: VirtAddr,
    len_bytes: u64,
) -> Result<PageRange, ProgramError> {
    let pages = pages_of(start.raw(), len_bytes).filter(|pages| pages.count <= PAGES_MAX);
    let what = "a region without bytes, of more than 2^48, or beyond the last address";
    let pages = pages.ok_or(ProgramError { program, what })?;
    check(program, &[(start.page_offset() == 0, "a region that does not begin with a page")])?;
    Ok(pages)
}

fn map(pages: PageRange, backing: MapBacking, protection: MapProtection) -> Action {
    Action::Memory(TraceEvent::Map { pages, protection, backing, shared: false })
}

fn anonymous(pages: PageRange) -> Action {
    map(pages, MapBacking::Anonymous, MapProtection::READ_WRITE)
}

/// Steps of process 0.
fn single(actions: impl Iterator<Item = Action>) -> impl Iterator<Item = Step> {
    actions.map(|action| Step { process: 0, action })
}

/// Each page of a region written once, in order, as a program does that fills
/// its memory before it measures.
fn fill(start: VirtAddr, pages: u64) -> impl Iterator<Item = Action> {
    (0..pages).map(move |page| word(start, page * BASE_PAGE_BYTES, 8, AccessKind::Write, 0))
}

#[inline]
fn word(start: VirtAddr, offset: u64, len_bytes: u16, kind: AccessKind, cycles: u32) -> Action {
    Action::Access {
        addr: start + offset,
        len_bytes,
        kind,
        dependent: false,
        compute_cycles: cycles,
    }
}

/// HPCC RandomAccess, whose measure is giga-updates per second (GUPS).
///
/// A table of 2^n words of 64 bits; for each update, the next number of the
/// sequence `ran = (ran << 1) ^ (ran < 0 ? 7 : 0)` (as signed 64-bit number;
/// the polynomial x^63 + x^2 + x + 1) is combined with a word by exclusive or:
/// `table[ran & (2^n - 1)] ^= ran`. HPCC makes four updates for each word.
/// Before, the table is filled with `table[i] = i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gups {
    /// Address of the table: a page's first.
    pub table: VirtAddr,
    /// Its length: a power of two, 8 or more.
    pub table_bytes: u64,
    /// Updates, each a read and then a write of the same word.
    pub updates: u64,
    /// Steps of the sequence to start after, from 1 (HPCC's rank 0 starts
    /// after none).
    pub seed: u64,
    /// Cycles of work for each update.
    pub update_cycles: u32,
}

/// The number after `ran` in RandomAccess's sequence.
#[inline]
pub const fn gups_next(ran: u64) -> u64 {
    (ran << 1) ^ if (ran as i64) < 0 { 7 } else { 0 }
}

/// The number that is reached after `steps` steps from 1. O(64 log steps):
/// the sequence is linear, so doubling the steps squares a map of 64 bits.
pub fn gups_start(steps: u64) -> u64 {
    // powers[i]: bit i alone, advanced by 2^k steps.
    let mut powers: [u64; 64] = std::array::from_fn(|i| gups_next(1 << i));
    let apply = |map: &[u64; 64], value: u64| {
        (0..64).filter(|i| value >> i & 1 != 0).fold(0, |sum, i| sum ^ map[i])
    };
    let mut value = 1;
    let mut left = steps;
    while left > 0 {
        if left & 1 != 0 {
            value = apply(&powers, value);
        }
        powers = std::array::from_fn(|i| apply(&powers, powers[i]));
        left >>= 1;
    }
    value
}

impl Gups {
    /// The steps: map, fill, begin, `2 * updates` accesses, end, exit.
    ///
    /// # Errors
    /// A table that is no power of two, or lies nowhere.
    pub fn steps(self) -> Result<impl Iterator<Item = Step>, ProgramError> {
        const NAME: &str = "gups";
        let Self { table, table_bytes, updates, seed, update_cycles } = self;
        let pages = region(NAME, table, table_bytes)?;
        let sound = table_bytes.is_power_of_two() && table_bytes >= 8;
        check(NAME, &[(sound, "a table that is not 2^n words of 8 bytes")])?;
        let mask = table_bytes / 8 - 1;
        let numbers =
            std::iter::successors(Some(gups_next(gups_start(seed))), |ran| Some(gups_next(*ran)));
        let accesses = (0..updates).zip(numbers).flat_map(move |(_, ran)| {
            let offset = (ran & mask) * 8;
            [
                word(table, offset, 8, AccessKind::Read, update_cycles),
                word(table, offset, 8, AccessKind::Write, 0),
            ]
        });
        let start = std::iter::once(anonymous(pages))
            .chain(fill(table, pages.count))
            .chain([Action::BEGIN]);
        Ok(single(start.chain(accesses).chain([Action::End, Action::Exit])))
    }
}

/// A pass over memory in order: LMbench's `bw_mem SIZE frd` ("Mem read", every
/// word of 4 bytes loaded and summed), `bw_mem SIZE fwr` ("Mem write", every
/// word stored) and `bw_mmap_rd SIZE mmap_only FILE` ("Mmap reread", every
/// word of a mapped file that is in memory already). The loops are unrolled:
/// there is nothing else in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sweep {
    /// Address of the memory: a page's first.
    pub start: VirtAddr,
    /// Its length, a multiple of a word's.
    pub len_bytes: u64,
    /// Bytes of a word: 4 in LMbench.
    pub word_bytes: u16,
    /// From one word to the next: as much as a word for `frd` and `fwr`, four
    /// times as much for the partial figures (`rd`, `wr`).
    pub stride_bytes: u64,
    /// Stores instead of loads.
    pub write: bool,
    /// The number of the file that is read; anonymous memory is written
    /// before it is measured, a file's pages are read.
    pub file: Option<u64>,
    /// Map and unmap anew in each pass (`open2close`).
    pub remap: bool,
    /// Passes over all of it that are measured.
    pub passes: u64,
    /// Cycles of work for each word.
    pub word_cycles: u32,
}

impl Sweep {
    /// The steps: map, touch each page, begin, `passes * ceil(len / stride)`
    /// accesses, end, exit.
    ///
    /// # Errors
    /// Words or strides that cannot be.
    pub fn steps(self) -> Result<impl Iterator<Item = Step>, ProgramError> {
        const NAME: &str = "sweep";
        let Self { start, len_bytes, word_bytes, stride_bytes, write, remap, .. } = self;
        let pages = region(NAME, start, len_bytes)?;
        let wide = u64::from(word_bytes);
        check(
            NAME,
            &[
                (len_bytes.is_multiple_of(wide), "a length that is no whole words"),
                (stride_bytes >= wide, "a stride shorter than a word"),
                (!(write && self.file.is_some()), "stores to a file that is mapped to be read"),
                (stride_bytes.is_multiple_of(wide), "a stride that is no whole words"),
            ],
        )?;
        let mapping = match self.file {
            None => anonymous(pages),
            Some(file) => map(pages, MapBacking::File { file, first_page: 0 }, MapProtection::READ),
        };
        let first = if self.file.is_some() { AccessKind::Read } else { AccessKind::Write };
        let touched = (0..pages.count)
            .map(move |page| word(start, page * BASE_PAGE_BYTES, word_bytes, first, 0));
        let kind = if write { AccessKind::Write } else { AccessKind::Read };
        let cycles = self.word_cycles;
        let words = len_bytes.div_ceil(stride_bytes);
        let passes = (0..self.passes).flat_map(move |pass| {
            let again = (remap && pass > 0)
                .then_some([Action::Memory(TraceEvent::Unmap { pages }), mapping])
                .into_iter()
                .flatten();
            let pass =
                (0..words).map(move |i| word(start, i * stride_bytes, word_bytes, kind, cycles));
            again.chain(pass)
        });
        let begin = std::iter::once(mapping).chain(touched).chain([Action::BEGIN]);
        Ok(single(begin.chain(passes).chain([Action::End, Action::Exit])))
    }
}

/// A copy of memory: LMbench's `bw_mem SIZE bcopy` ("Bcopy (libc)") and
/// `bw_mem SIZE fcp` ("Bcopy (hand)").
///
/// Blocks of `block_bytes` are loaded word by word and then stored. The
/// hand-written loop is unrolled but copies one word of 4 bytes after another:
/// words and blocks of 4. A C library moves several registers at once; on
/// ARMv7 that is 8 registers of 4 bytes, which its core moves in pairs: words
/// of 8, blocks of 32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Address of the source: a page's first.
    pub source: VirtAddr,
    /// Address of the destination: likewise, and clear of the source.
    pub destination: VirtAddr,
    /// Bytes copied in a pass, a multiple of a block's.
    pub len_bytes: u64,
    /// Bytes of one load or store.
    pub word_bytes: u16,
    /// Bytes that are loaded before they are stored, a multiple of a word's.
    pub block_bytes: u64,
    /// Passes that are measured.
    pub passes: u64,
    /// Cycles of work for each block.
    pub block_cycles: u32,
}

impl Copy {
    /// The steps: map both, write each page, begin, `2 * passes * len / word`
    /// accesses, end, exit.
    ///
    /// # Errors
    /// Regions, words or blocks that cannot be.
    pub fn steps(self) -> Result<impl Iterator<Item = Step>, ProgramError> {
        const NAME: &str = "copy";
        let Self { source, destination, len_bytes, word_bytes, block_bytes, .. } = self;
        let from = region(NAME, source, len_bytes)?;
        let to = region(NAME, destination, len_bytes)?;
        let wide = u64::from(word_bytes);
        check(
            NAME,
            &[
                (!from.overlaps(to), "a destination that lies in the source"),
                (wide > 0 && block_bytes > 0, "a word or block without bytes"),
                (block_bytes.is_multiple_of(wide), "a block that is no whole words"),
                (len_bytes.is_multiple_of(block_bytes), "a length of no whole blocks"),
            ],
        )?;
        let (words, blocks) = (block_bytes / wide, len_bytes / block_bytes);
        let cycles = self.block_cycles;
        let copied = (0..self.passes).flat_map(move |_| {
            (0..blocks).flat_map(move |block| {
                (0..2 * words).map(move |i| {
                    let (at, kind, start) = match i.checked_sub(words) {
                        None => (i, AccessKind::Read, source),
                        Some(i) => (i, AccessKind::Write, destination),
                    };
                    let cycles = if i == 0 { cycles } else { 0 };
                    word(start, block * block_bytes + at * wide, word_bytes, kind, cycles)
                })
            })
        });
        let begin = [anonymous(from), anonymous(to)]
            .into_iter()
            .chain(fill(source, from.count))
            .chain(fill(destination, to.count))
            .chain([Action::BEGIN]);
        Ok(single(begin.chain(copied).chain([Action::End, Action::Exit])))
    }
}

/// LMbench's `lat_mem_rd -t SIZE STRIDE` ("Rand mem latency"): a ring of
/// pointers, each load dependent on the one before.
///
/// With P pages in a random order p and W places of `stride_bytes` in a page,
/// load t of a round is of page `p[t mod P]`, place
/// `reverse((t mod P + t / P) mod W)`, where reverse turns the order of the
/// bits around: each load goes to another page, and each place of the memory
/// is loaded once in a round of P W loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomLatency {
    /// Address of the ring: a page's first.
    pub start: VirtAddr,
    /// Its length in bytes: whole pages.
    pub len_bytes: u64,
    /// From one place to the next: a power of two, 8 to 4096.
    pub stride_bytes: u64,
    /// Loads that are measured.
    pub loads: u64,
    /// Of the order of the pages.
    pub seed: u64,
    /// Bytes of a pointer.
    pub pointer_bytes: u16,
}

impl RandomLatency {
    /// The steps: map, write each page, begin, `loads` dependent reads,
    /// end, exit. Memory: 4 bytes a page.
    ///
    /// # Errors
    /// A length or stride that cannot be.
    pub fn steps(self) -> Result<impl Iterator<Item = Step>, ProgramError> {
        const NAME: &str = "random latency";
        let Self { start, len_bytes, stride_bytes, pointer_bytes, .. } = self;
        let pages = region(NAME, start, len_bytes)?;
        let stride =
            stride_bytes.is_power_of_two() && (8..=BASE_PAGE_BYTES).contains(&stride_bytes);
        check(
            NAME,
            &[
                (len_bytes.is_multiple_of(BASE_PAGE_BYTES), "a length that is no whole pages"),
                (pages.count <= 1 << 24, "more than 2^24 pages in random order"),
                (stride, "a stride that is no power of two from 8 to 4096"),
                (pointer_bytes == 4 || pointer_bytes == 8, "pointers not of 4 or 8 bytes"),
            ],
        )?;
        let mut order: Vec<u32> = (0..pages.count as u32).collect();
        let mut random = Pcg64::seed_from_u64(self.seed);
        for i in (1..order.len()).rev() {
            order.swap(i, random.random_range(0..=i));
        }
        let count = pages.count;
        let places = BASE_PAGE_BYTES / stride_bytes;
        let unused = 64 - places.trailing_zeros();
        let offset = move |(page, round): (u64, u64)| {
            let turned = (page + round) % places;
            let place = if places == 1 { 0 } else { turned.reverse_bits() >> unused };
            u64::from(order[page as usize]) * BASE_PAGE_BYTES + place * stride_bytes
        };
        let mut next = (0, 0);
        let loads = (0..self.loads).map(move |_| {
            let at = offset(next);
            next = if next.0 + 1 < count { (next.0 + 1, next.1) } else { (0, next.1 + 1) };
            Action::Access {
                addr: start + at,
                len_bytes: pointer_bytes,
                kind: AccessKind::Read,
                dependent: true,
                compute_cycles: 0,
            }
        });
        let begin =
            std::iter::once(anonymous(pages)).chain(fill(start, count)).chain([Action::BEGIN]);
        Ok(single(begin.chain(loads).chain([Action::End, Action::Exit])))
    }
}

/// Processes that fork until there are enough, write, and exit.
///
/// A tree with `children` to a node and `depth` levels below the first
/// process, numbered level by level: process p forks processes
/// `children * p + 1` to `children * p + children`. All of a level are there
/// before the next begins, and none exits before the last has written. Each
/// child, right after its fork, writes `written_pages` of the parent's data
/// (copied, since the two share it), spread evenly; exits come in the opposite
/// order. The talk names the test and no parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forkbomb {
    /// Address of the data: a page's first.
    pub data: VirtAddr,
    /// Pages of data, all written by the first process.
    pub data_pages: u64,
    /// Pages that each child writes, at most the data.
    pub written_pages: u64,
    /// Children of each process that has any, 1 or more.
    pub children: u32,
    /// Levels below the first process.
    pub depth: u32,
    /// Cycles of work for each write.
    pub write_cycles: u32,
}

impl Forkbomb {
    /// Processes in all, if there are not too many.
    pub fn processes(self) -> Option<u64> {
        let mut level = 1u64;
        let mut all = 1u64;
        for _ in 0..self.depth {
            level = level.checked_mul(u64::from(self.children))?;
            all = all.checked_add(level).filter(|&all| all <= PROCESSES_MAX)?;
        }
        Some(all)
    }

    /// The steps: map, fill, begin, for each child a fork and
    /// `written_pages` writes, all exits but the first process's, end, exit.
    ///
    /// # Errors
    /// More than [`PROCESSES_MAX`] processes; data that lie nowhere.
    pub fn steps(self) -> Result<impl Iterator<Item = Step>, ProgramError> {
        const NAME: &str = "forkbomb";
        let Self { data, data_pages, written_pages, children, write_cycles, .. } = self;
        let len_bytes = data_pages.saturating_mul(BASE_PAGE_BYTES);
        let pages = region(NAME, data, len_bytes)?;
        let few = "no children, or more than 2^20 processes";
        let processes = self
            .processes()
            .filter(|_| children > 0)
            .ok_or(ProgramError { program: NAME, what: few })?;
        check(NAME, &[(written_pages <= data_pages, "more pages written than there are")])?;
        let first = |action| Step { process: 0, action };
        let children = u64::from(children);
        let born = (1..processes).flat_map(move |child| {
            let parent = (child - 1) / children;
            let fork =
                Step { process: parent as u32, action: Action::Fork { child: child as u32 } };
            let writes = (0..written_pages).map(move |i| {
                let page = i * data_pages / written_pages;
                let at = page * BASE_PAGE_BYTES;
                let action = word(data, at, 8, AccessKind::Write, write_cycles);
                Step { process: child as u32, action }
            });
            std::iter::once(fork).chain(writes)
        });
        let exits =
            (1..processes).rev().map(|child| Step { process: child as u32, action: Action::Exit });
        let begin = std::iter::once(anonymous(pages))
            .chain(fill(data, data_pages))
            .chain([Action::BEGIN])
            .map(first);
        Ok(begin.chain(born).chain(exits).chain([first(Action::End), first(Action::Exit)]))
    }
}

/// Threads of one process on as many processors, for the flushes that a change of a table owes
/// each processor's TLBs. No program of the talk: its machine has four processors, and it says
/// nothing of them.
///
/// In turn, thread t writes pages t, t + n, t + 2 n and so on, so that superpages arise while all
/// of them use their pages. Then thread 0 makes the first page of each `superpage_pages` read-only
/// and writable again, which demotes the superpage, and each thread writes a page of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// Address of the memory: a page's first.
    pub start: VirtAddr,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Threads, 1 or more, with the process itself.
    pub threads: u32,
    /// Pages of a superpage.
    pub superpage_pages: u64,
}

impl Threads {
    /// The steps: map, start the threads, begin, write all pages, change the first of each
    /// superpage, end, all exits.
    ///
    /// # Errors
    /// Memory that lies nowhere, no threads, or superpages of no pages.
    pub fn steps(self) -> Result<impl Iterator<Item = Step>, ProgramError> {
        const NAME: &str = "threads";
        let Self { start, len_bytes, threads, superpage_pages } = self;
        let pages = region(NAME, start, len_bytes)?;
        check(
            NAME,
            &[(threads > 0, "no threads"), (superpage_pages > 0, "superpages of no pages")],
        )?;
        let first = |action| Step { process: 0, action };
        let write = move |thread: u32, page: u64| Step {
            process: thread,
            action: word(start, page * BASE_PAGE_BYTES, 4, AccessKind::Write, 0),
        };
        let turns = u64::from(threads);
        let filled = (0..pages.count).map(move |page| write((page % turns) as u32, page));
        let changed = (0..pages.count).step_by(superpage_pages as usize).flat_map(move |page| {
            let one = PageRange::new(pages.start + page, 1);
            let protect = move |protection| {
                first(Action::Memory(TraceEvent::Protect { pages: one, protection }))
            };
            let last = pages.count - 1;
            let again =
                (0..threads).map(move |thread| write(thread, (page + u64::from(thread)).min(last)));
            [protect(MapProtection::READ), protect(MapProtection::READ_WRITE)]
                .into_iter()
                .chain(again)
        });
        let others = (1..threads).map(move |child| first(Action::Thread { child }));
        let exits = (1..threads).map(|process| Step { process, action: Action::Exit });
        Ok(std::iter::once(first(anonymous(pages)))
            .chain(others)
            .chain([first(Action::BEGIN)])
            .chain(filled)
            .chain(changed)
            .chain([first(Action::End)])
            .chain(exits)
            .chain([first(Action::Exit)]))
    }
}

/// The talk's TLB-miss experiment ("Test plan"): a region of
/// `2 * tlb_entries * superpage_bytes` bytes, and one load of each of its base
/// pages. With 64 entries and 1 MiB that is 32,768 loads; the talk saw 32,882
/// misses without superpages.
///
/// X is the time of the loop, Y that of as many turns without a miss, T the
/// misses; a miss costs (X - Y) / T. [`MissLoop::without_misses`] is the loop
/// of Y: the talk does not say how it ran, so here it makes the same turns
/// over the first `near_pages` pages, whose translations stay in the TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissLoop {
    /// Address of the region: a page's first.
    pub start: VirtAddr,
    /// Entries of the TLB.
    pub tlb_entries: u64,
    /// Bytes of a superpage.
    pub superpage_bytes: u64,
    /// Write each page before, so that no load faults; without it, the loop
    /// writes itself, and its first writes fault.
    pub touch_first: bool,
    /// From a page's first byte to the load in it, more for each page (modulo
    /// a page): 0 has all loads in the same set of a cache.
    pub skew_bytes: u64,
    /// Number of times that all pages are loaded.
    pub passes: u64,
    /// Cycles of work for each turn.
    pub turn_cycles: u32,
}

impl MissLoop {
    /// Base pages of the region, the turns of a pass; `None` if they are too
    /// many to count.
    pub fn pages(self) -> Option<u64> {
        let bytes = self.tlb_entries.checked_mul(2)?.checked_mul(self.superpage_bytes)?;
        Some(bytes / BASE_PAGE_BYTES)
    }

    /// The loop of X: map, perhaps write each page, begin, `passes * pages`
    /// accesses, end, exit.
    ///
    /// # Errors
    /// A region that lies nowhere.
    pub fn steps(self) -> Result<impl Iterator<Item = Step>, ProgramError> {
        self.turns(u64::MAX)
    }

    /// The loop of Y: the same steps, but that the turns stay in the first
    /// `near_pages` pages, 1 or more.
    ///
    /// # Errors
    /// As [`MissLoop::steps`].
    pub fn without_misses(
        self,
        near_pages: u64,
    ) -> Result<impl Iterator<Item = Step>, ProgramError> {
        self.turns(near_pages)
    }

    fn turns(self, near_pages: u64) -> Result<impl Iterator<Item = Step>, ProgramError> {
        const NAME: &str = "miss loop";
        let Self { start, skew_bytes, touch_first, turn_cycles, .. } = self;
        let bytes = self.pages().and_then(|pages| pages.checked_mul(BASE_PAGE_BYTES));
        let pages = region(NAME, start, bytes.unwrap_or(u64::MAX))?;
        check(
            NAME,
            &[
                (
                    self.superpage_bytes.is_multiple_of(BASE_PAGE_BYTES),
                    "superpages of no whole pages",
                ),
                (near_pages > 0, "a loop without misses over no page"),
                (
                    skew_bytes.is_multiple_of(8) && skew_bytes < BASE_PAGE_BYTES,
                    "a skew of no whole words",
                ),
            ],
        )?;
        let kind = if touch_first { AccessKind::Read } else { AccessKind::Write };
        let count = pages.count;
        let near = near_pages.min(count);
        let passes = (0..self.passes).flat_map(move |_| {
            (0..count).map(move |i| {
                let within = i * skew_bytes % BASE_PAGE_BYTES;
                let at = i % near * BASE_PAGE_BYTES + within;
                word(start, at, 8, kind, turn_cycles)
            })
        });
        let filled = if touch_first { count } else { 0 };
        let begin =
            std::iter::once(anonymous(pages)).chain(fill(start, filled)).chain([Action::BEGIN]);
        Ok(single(begin.chain(passes).chain([Action::End, Action::Exit])))
    }
}
