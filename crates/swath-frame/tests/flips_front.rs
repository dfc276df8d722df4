//! Single bits flipped in the words of a per-CPU front: the bits that the caller gave, and the
//! slots.
//!
//! `FLIPS=3000 cargo test --release -p swath-frame --test suite flips_front -- --nocapture`

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lock_api::{GuardSend, RawMutex};
use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::{Fifo, Front, Reuse, Slot};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, FrameFreeError, MemoryMap, PageBuddy};

type Buddy = PageBuddy<Vec<u64>>;

/// With holes, so that a wrong number can be that of no frame.
const AREAS: [(u64, u64); 3] = [(70, 500), (600, 1), (700, 900)];
const CPUS: usize = 2;

/// One thread is all there is.
struct Alone(AtomicBool);

// SAFETY: `try_lock` says true only if it changed the flag from false to true in one atomic step,
// and `lock` returns only then; only `unlock`, which who holds the lock calls, makes it false.
unsafe impl RawMutex for Alone {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = GuardSend;

    fn lock(&self) {
        assert!(self.try_lock(), "a lock that is taken twice");
    }

    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What the trials came to. A trial counts once, in the first line that fits.
#[derive(Default, Debug)]
struct Tally {
    panics: usize,
    /// A frame went out that was out, or that is none.
    twice: usize,
    outside: usize,
    /// A wrong free was accepted.
    accepted: usize,
    /// A call said that a word is wrong, or refused a rightful free.
    told: usize,
    refused: usize,
    /// The walk over all words found it.
    found: usize,
    silent: usize,
}

/// What one trial saw, in a model of which frames are out.
struct Seen {
    out: Vec<Option<bool>>,
    twice: bool,
    outside: bool,
    accepted: bool,
    refused: bool,
    told: bool,
}

impl Seen {
    fn of(areas: &[(u64, u64)]) -> Self {
        let end = areas.iter().map(|(start, count)| start + count).max().unwrap_or_default();
        let mut out = vec![None; end as usize + 100];
        for &(start, count) in areas {
            out[start as usize..(start + count) as usize].fill(Some(false));
        }
        let (twice, outside, accepted, refused, told) = (false, false, false, false, false);
        Self { out, twice, outside, accepted, refused, told }
    }

    fn took(&mut self, block: Extent) {
        for frame in block.iter() {
            match self.out.get_mut(frame.raw() as usize) {
                Some(Some(out)) => self.twice |= std::mem::replace(out, true),
                _ => self.outside = true,
            }
        }
    }

    fn is_out(&self, block: Extent) -> bool {
        block.iter().all(|frame| self.out.get(frame.raw() as usize) == Some(&Some(true)))
    }

    fn gave(&mut self, block: Extent, freed: Result<(), FrameFreeError>) {
        let rightful = self.is_out(block);
        match freed {
            Ok(()) => {
                self.accepted |= !rightful;
                for frame in block.iter() {
                    if let Some(Some(out)) = self.out.get_mut(frame.raw() as usize) {
                        *out = false;
                    }
                }
            }
            Err(FrameFreeError::Corrupt(_)) => self.told = true,
            Err(_) => self.refused |= rightful,
        }
    }
}

fn steps<U: Reuse>(
    front: &Front<'_, Alone, Buddy, U>,
    seen: &mut Seen,
    random: &mut Random,
    steps: usize,
) {
    // Fills and empties, so that slots claim and flush.
    let mut takes_of_8 = 6;
    for step in 0..steps {
        if step % 100 == 0 {
            takes_of_8 = 2 + random.below(5);
        }
        let mut cpu = front.on(random.index(CPUS)).unwrap();
        if random.below(8) < takes_of_8 {
            match random.below(16) {
                0 => {
                    let count = 1 + random.below(70);
                    let _ =
                        FrameAllocator::allocate(&mut cpu, count, &mut |block| seen.took(block));
                }
                1 => {
                    let order = Order::known(random.below(11) as u8);
                    cpu.allocate_aligned(order).into_iter().for_each(|block| seen.took(block));
                }
                _ => cpu.allocate_frame().into_iter().for_each(|at| seen.took(Extent::new(at, 1))),
            }
        } else {
            let from = random.below(1650);
            // Mostly what is out, else whatever comes.
            let start = if random.below(10) > 0 {
                (from..1700).find(|&at| seen.out[at as usize] == Some(true)).unwrap_or(from)
            } else {
                from
            };
            let block = Extent::new(Pfn::new(start), [1, 1, 1, 1, 3, 16, 40][random.index(7)]);
            let freed = cpu.free(block);
            seen.gave(block, freed);
        }
    }
}

/// Flips a bit of any word; half of the times of one that has something else in it than no bits or all, if a
/// few tries find one: most words of a slot are places of blocks that it does not hold.
fn flip<U: Reuse>(front: &Front<'_, Alone, Buddy, U>, random: &mut Random) {
    let tries = if random.one_in(2) { 20 } else { 1 };
    for left in (0..tries).rev() {
        let (word, bit) = (random.index(front.own_words()), random.below(64) as u32);
        let was = front.flip(word, bit);
        if left == 0 || was != 0 && was != u64::MAX {
            return;
        }
        front.flip(word, bit);
    }
}

/// What calls on a front saw, and what it says of itself at the end.
fn tell(tally: &mut Tally, seen: &Seen, ran: std::thread::Result<bool>) {
    *match ran {
        _ if seen.twice => &mut tally.twice,
        Err(_) => &mut tally.panics,
        // From then on two things are wrong.
        Ok(_) if seen.accepted => &mut tally.accepted,
        Ok(_) if seen.outside => &mut tally.outside,
        Ok(_) if seen.told => &mut tally.told,
        Ok(_) if seen.refused => &mut tally.refused,
        Ok(true) => &mut tally.found,
        Ok(false) => &mut tally.silent,
    } += 1;
}

/// Takes huge pages on one CPU and gives them back on the other, as many as some are pooled then.
fn huge_pages(front: &Front<'_, Alone, Buddy>, seen: &mut Seen, random: &mut Random) {
    let mut pages = Vec::new();
    let order = Order::known(9 + random.below(2) as u8);
    let keep = random.index(8);
    while let Ok(page) = front.on(0).unwrap().allocate_aligned(order) {
        seen.took(page);
        pages.push(page);
    }
    for &page in pages.iter().skip(keep) {
        let freed = front.on(1).unwrap().free(page);
        seen.gave(page, freed);
    }
    for page in pages.into_iter().take(keep) {
        let freed = front.on(random.index(CPUS)).unwrap().free(page);
        seen.gave(page, freed);
    }
}

type Calls<U> = fn(&Front<'_, Alone, Buddy, U>, &mut Seen, &mut Random);

/// What is tried on a front: the memory, how that is managed, and the calls before the flip and after it.
struct Attack<const AREAS: usize, U> {
    areas: [(u64, u64); AREAS],
    config: BuddyConfig,
    made: for<'m> fn(Front<'m, Alone, Buddy>) -> Front<'m, Alone, Buddy, U>,
    before: Calls<U>,
    after: Calls<U>,
}

const fn frames<U: Reuse>(
    made: for<'m> fn(Front<'m, Alone, Buddy>) -> Front<'m, Alone, Buddy, U>,
) -> Attack<{ AREAS.len() }, U> {
    Attack {
        areas: AREAS,
        config: BuddyConfig::PBS_ARMV7,
        made,
        before: |front, seen, random| steps(front, seen, random, 600),
        after: |front, seen, random| {
            steps(front, seen, random, 600);
            // A slot that was wrong is empty at the next call.
            for _ in 0..2 {
                while let Some(frame) = front.on(0).unwrap().allocate_frame() {
                    seen.took(Extent::new(frame, 1));
                }
            }
        },
    }
}

/// The pooled huge pages of a front with more memory than its slots hold.
const PAGES: Attack<1, Fifo> = Attack {
    areas: [(700, 48 << 10)],
    config: BuddyConfig::PBS_ARMV8,
    made: |front| front,
    before: huge_pages,
    after: |front, seen, random| (0..3).for_each(|_| huge_pages(front, seen, random)),
};

fn trial<const AREAS: usize, U: Reuse>(attack: &Attack<AREAS, U>, seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let ranges = attack
        .areas
        .map(|(start, count)| ByteRange::of_frames(Extent::new(Pfn::new(start), count)));
    let mut areas = [Extent::default(); AREAS];
    let map = MemoryMap::new(&ranges, &mut areas).unwrap();
    let words = vec![0; Buddy::storage_words(&map, attack.config)];
    let buddy = Buddy::new(&map, attack.config, words).unwrap();
    let mut slots: Vec<Slot<Alone>> = (0..CPUS).map(|_| Slot::new()).collect();
    let bits = Front::<Alone, Buddy>::bits_len(&buddy);
    let mut bits: Vec<AtomicUsize> = (0..bits).map(|_| AtomicUsize::new(0)).collect();
    let front = (attack.made)(Front::new(buddy, &mut slots, &mut bits).unwrap());
    let mut seen = Seen::of(&attack.areas);
    (attack.before)(&front, &mut seen, &mut random);
    let clean = !(seen.twice || seen.outside || seen.accepted || seen.refused || seen.told);
    assert!(clean && front.check().is_ok(), "seed {seed} fails without a flip");
    flip(&front, &mut random);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let found = front.check().is_err();
        (attack.after)(&front, &mut seen, &mut random);
        seen.told |= front.fault().is_some();
        found || front.check().is_err()
    }));
    tell(tally, &seen, ran);
}

/// Runs the trials, of which none may break the front; how many, and what they came to.
fn trials<const AREAS: usize, U: Reuse>(name: &str, attack: &Attack<AREAS, U>) -> (usize, Tally) {
    let trials: usize = std::env::var("FLIPS").map_or(300, |trials| trials.parse().unwrap());
    let mut tally = Tally::default();
    (0..trials as u64).for_each(|seed| trial(attack, seed, &mut tally));
    println!("{name}, {trials} flips: {tally:?}");
    assert_eq!((tally.panics, tally.twice, tally.outside), (0, 0, 0), "{tally:?}");
    (trials, tally)
}

#[test]
fn no_flip_breaks_the_front() {
    let (trials, tally) = trials("the front", &frames(|front| front));
    assert!(tally.told > trials / 5, "a call says what is wrong: {tally:?}");
}

#[test]
fn no_flip_breaks_a_front_that_gathers() {
    let (trials, tally) = trials("the front that gathers", &frames(|front| front.gathering()));
    assert!(tally.told > trials / 5, "a call says what is wrong: {tally:?}");
}

#[test]
fn no_flip_breaks_pooled_pages() {
    trials("the front's huge pages", &PAGES);
}
