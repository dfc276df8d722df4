//! Single bits flipped in the words of each structure, while it runs.
//!
//! A trial builds a structure, uses it for a while beside a model that knows which
//! frames are out, flips one bit of one word, and goes on using it. What the
//! checked tier promises is counted: no panic, no frame out twice, none that is
//! not of the map, and a typed error for each flip that a call met. What no call
//! met, the walk over all words has to find, or the word must be one that nothing
//! depends on any more.
//!
//! Some hundred trials for each structure run in the suite. All 10,000:
//! `FLIPS=10000 cargo test --release -p swath-frame --test suite flips -- --nocapture`

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::buddy::Rule;
use swath_frame::hardening::Table;
use swath_frame::zone::bank::{
    ArrayPlacement, BankBuddy, BankLayout, ListPlacement, Placement, PoolPlacement, PoolPolicy,
};
use swath_frame::{
    BestFit, BuddyConfig, ByteRange, Checked, FrameAllocateError, FrameAllocator, FrameFreeError,
    HeadOfList, LinuxZone, MemoryMap, Mobility, PageBuddy, WordFault, ZoneAllocator,
};

/// Words of which a bit flips when they are next borrowed to be changed.
#[derive(Clone)]
pub(crate) struct Words {
    words: Vec<u64>,
    pub(crate) flip: Rc<Cell<Option<(usize, u32)>>>,
}

impl Words {
    pub(crate) fn new(len: usize) -> Self {
        Self { words: vec![0; len], flip: Rc::default() }
    }
}

impl Deref for Words {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.words
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        if let Some((word, bit)) = self.flip.take() {
            self.words[word] ^= 1 << bit;
        }
        &mut self.words
    }
}

/// A free that is refused, or an allocation that is not served.
pub(crate) enum Refused {
    /// For a reason that has nothing to do with the words.
    Fairly,
    Corrupt(WordFault),
}

/// A structure to be hurt.
pub(crate) trait Victim {
    /// Takes a block by one of the calls, hands what it gets to `sink`.
    fn take(&mut self, random: &mut Random, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused>;
    /// Gives back frames.
    fn give(&mut self, extent: Extent) -> Result<(), Refused>;
    /// Takes single frames until there are no more.
    fn drain(&mut self, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused>;
    /// Walks all words.
    fn find(&self) -> Result<(), WordFault>;
}

/// What became of a flip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// A call reported it, and named this word.
    Reported(usize),
    /// The walk at the end found it, and named this word.
    Walked(usize),
    /// The word was written over, or holds nothing now.
    Gone,
    Twice,
    Outside,
    Panicked,
    /// The structure served wrongly or lost frames without a word: where it showed.
    Silent(&'static str),
}

#[derive(Default)]
pub(crate) struct Tally {
    reported: usize,
    walked: usize,
    exact: usize,
    gone: usize,
    twice: usize,
    outside: usize,
    panicked: usize,
    silent: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "reported by a call {}, found by the walk {} (of both named exactly {}), gone {}, \
             twice {}, outside {}, panicked {}, silent {}",
            self.reported,
            self.walked,
            self.exact,
            self.gone,
            self.twice,
            self.outside,
            self.panicked,
            self.silent
        )
    }
}

/// The frames of the map, and which of them are out.
#[derive(Clone)]
struct Model {
    mine: Vec<bool>,
    out: Vec<bool>,
    blocks: Vec<Extent>,
    bad: Option<Outcome>,
}

impl Model {
    fn new(map: &MemoryMap<'_>) -> Self {
        let mut mine = vec![false; map.span().end().raw() as usize];
        for frame in map.areas().iter().flat_map(|area| area.iter()) {
            mine[frame.raw() as usize] = true;
        }
        Self { out: vec![false; mine.len()], mine, blocks: Vec::new(), bad: None }
    }

    fn took(&mut self, block: Extent) {
        for frame in block.start.raw()..block.start.raw().saturating_add(block.count.min(1 << 20)) {
            match self.mine.get(frame as usize) {
                Some(true) if !std::mem::replace(&mut self.out[frame as usize], true) => {}
                Some(true) => self.bad = Some(Outcome::Twice),
                _ => self.bad = Some(Outcome::Outside),
            }
        }
        self.blocks.push(block);
    }

    fn gave(&mut self, block: Extent) {
        block.iter().for_each(|frame| self.out[frame.raw() as usize] = false);
    }

    fn is_out(&self, extent: Extent) -> bool {
        extent.checked_end().is_some_and(|end| {
            end.raw() <= self.out.len() as u64
                && extent.iter().all(|frame| self.out[frame.raw() as usize])
        })
    }
}

/// Runs `steps` calls; the fault if one is reported.
fn steps(
    victim: &mut dyn Victim,
    model: &mut Model,
    random: &mut Random,
    steps: usize,
) -> Result<Option<WordFault>, Outcome> {
    for _ in 0..steps {
        let result = match random.below(8) {
            // A free that names anything.
            0 => {
                let start = Pfn::new(random.below(model.out.len() as u64 + 70));
                let some = Extent::new(start, 1 + random.below(3));
                let fair = model.is_out(some);
                let extent = if fair { some } else { Extent::new(start, 1) };
                let fair = fair || model.is_out(extent);
                let result = victim.give(extent);
                if result.is_ok() && !fair {
                    // A wrong free was taken: what goes out twice by it counts.
                    extent.iter().for_each(|frame| {
                        if let Some(out) = model.out.get_mut(frame.raw() as usize) {
                            *out = false;
                        }
                    });
                } else if result.is_ok() {
                    model.gave(extent);
                    model.blocks = runs(&model.out);
                }
                result
            }
            1..4 if !model.blocks.is_empty() => {
                let index = random.below(model.blocks.len() as u64) as usize;
                let mut block = model.blocks.swap_remove(index);
                if block.count > 1 && random.below(2) == 0 {
                    let (first, rest) = block.split_at(1 + random.below(block.count - 1));
                    model.blocks.push(rest);
                    block = first;
                }
                let result = victim.give(block);
                match result {
                    Ok(()) => model.gave(block),
                    Err(Refused::Fairly) => return Err(Outcome::Silent("a free is refused")),
                    Err(_) => {}
                }
                result
            }
            _ => victim.take(random, &mut |block| model.took(block)),
        };
        if let Some(bad) = model.bad {
            return Err(bad);
        }
        if let Err(Refused::Corrupt(fault)) = result {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

fn runs(out: &[bool]) -> Vec<Extent> {
    let frames: Vec<u64> = (0..out.len()).filter(|&at| out[at]).map(|at| at as u64).collect();
    let runs = frames.chunk_by(|a, b| a + 1 == *b);
    runs.map(|run| Extent::new(Pfn::new(run[0]), run.len() as u64)).collect()
}

/// One flip, and what became of it.
fn trial<V: Victim>(
    victim: &mut V,
    model: &mut Model,
    random: &mut Random,
    flip: &Rc<Cell<Option<(usize, u32)>>>,
    len: usize,
) -> (usize, Outcome) {
    let word = random.below(len as u64) as usize;
    flip.set(Some((word, random.below(64) as u32)));
    let mut run = || -> Result<Outcome, Outcome> {
        let calls = 20 + random.below(200) as usize;
        if let Some(fault) = steps(victim, model, random, calls)? {
            // Stopped is stopped: nothing goes out any more.
            let mut more = 0;
            let _ = victim.drain(&mut |_| more += 1);
            let _ = victim.take(random, &mut |_| more += 1);
            return if more == 0 {
                Ok(Outcome::Reported(fault.word))
            } else {
                Err(Outcome::Silent("serves though it stopped"))
            };
        }
        let found = victim.find().err();
        let drained = victim.drain(&mut |block| model.took(block));
        if let Some(bad) = model.bad {
            return Err(bad);
        }
        if let Some(fault) = found {
            return Ok(Outcome::Walked(fault.word));
        }
        match drained {
            Err(Refused::Corrupt(_)) => Err(Outcome::Silent("the walk missed it")),
            _ if model.out != model.mine => Err(Outcome::Silent("frames are lost")),
            _ => Ok(Outcome::Gone),
        }
    };
    let outcome = match catch_unwind(AssertUnwindSafe(&mut run)) {
        Ok(Ok(outcome) | Err(outcome)) => outcome,
        Err(_) => Outcome::Panicked,
    };
    (word, outcome)
}

pub(crate) fn trials() -> usize {
    std::env::var("FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

/// Memory with holes, inside words and of whole words, from no aligned frame to none.
pub(crate) const AREAS: [(u64, u64); 4] = [(5, 701), (703, 1900), (2048, 4099), (4200, 4288)];

pub(crate) fn map(storage: &mut [Extent]) -> MemoryMap<'_> {
    let ranges =
        AREAS.map(|(start, end)| ByteRange::of_frames(Extent::new(Pfn::new(start), end - start)));
    MemoryMap::new(&ranges, storage).expect("the ranges are apart")
}

/// Hurts copies of what `build` makes, which says how many words it has.
pub(crate) fn campaign<V: Victim + Clone>(
    name: &str,
    build: impl Fn(&mut dyn FnMut(&Words)) -> V,
) -> Tally {
    let mut areas = [Extent::default(); AREAS.len()];
    let map = map(&mut areas);
    let mut tally = Tally::default();
    let mut built = None;
    for seed in 0..trials() as u64 {
        let mut random = Random::new(seed);
        if seed % 25 == 0 {
            let mut words = None;
            let mut victim = build(&mut |given: &Words| {
                words = Some((Rc::clone(&given.flip), given.words.len()));
            });
            let mut model = Model::new(&map);
            let aged = steps(&mut victim, &mut model, &mut random, 400);
            assert!(matches!(aged, Ok(None)), "{name}: seed {seed}: wrong without a flip");
            assert_eq!(victim.find(), Ok(()), "{name}: seed {seed}");
            built = Some((victim, model, words.expect("a victim has words")));
        }
        let Some((victim, model, (flip, len))) = &built else { continue };
        let (mut victim, mut model) = (victim.clone(), model.clone());
        let (word, outcome) = trial(&mut victim, &mut model, &mut random, flip, *len);
        let count = match outcome {
            Outcome::Reported(named) | Outcome::Walked(named) => {
                tally.exact += usize::from(named == word);
                if matches!(outcome, Outcome::Walked(_)) {
                    &mut tally.walked
                } else {
                    &mut tally.reported
                }
            }
            Outcome::Gone => &mut tally.gone,
            Outcome::Twice => &mut tally.twice,
            Outcome::Outside => &mut tally.outside,
            Outcome::Panicked => &mut tally.panicked,
            Outcome::Silent(_) => &mut tally.silent,
        };
        *count += 1;
        if !matches!(outcome, Outcome::Reported(_) | Outcome::Walked(_) | Outcome::Gone) {
            println!("{name}: seed {seed}: word {word} of {len}: {outcome:?}");
        }
    }
    println!("{name}: {} flips: {tally}", trials());
    tally
}

pub(crate) fn judge(name: &str, tally: &Tally) {
    let broken = tally.twice + tally.outside + tally.panicked + tally.silent;
    assert_eq!(broken, 0, "{name}: {tally}");
    assert!(tally.reported > 0 && tally.exact > 0, "{name}: {tally}");
}

impl<R: Rule> Victim for PageBuddy<Words, R, Checked> {
    fn take(&mut self, random: &mut Random, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        let corrupt = |fault: Option<WordFault>| fault.map_or(Refused::Fairly, Refused::Corrupt);
        match random.below(4) {
            0 => match self.allocate_frame() {
                Some(frame) => sink(Extent::new(frame, 1)),
                None => return Err(corrupt(self.fault())),
            },
            1 => match self.allocate_block(1 + random.below(90)) {
                Some(block) => sink(block),
                None => return Err(corrupt(self.fault())),
            },
            2 => match self.allocate(1 + random.below(40), sink) {
                Ok(()) => {}
                Err(FrameAllocateError::Corrupt(fault)) => return Err(Refused::Corrupt(fault)),
                Err(_) => return Err(Refused::Fairly),
            },
            _ => match self.allocate_aligned(Order::known(random.below(10) as u8)) {
                Ok(block) => sink(block),
                Err(FrameAllocateError::Corrupt(fault)) => return Err(Refused::Corrupt(fault)),
                Err(_) => return Err(Refused::Fairly),
            },
        }
        Ok(())
    }

    fn give(&mut self, extent: Extent) -> Result<(), Refused> {
        let single = extent.count == 1;
        let result = if single { self.free_frame(extent.start) } else { self.free(extent) };
        match result {
            Ok(()) => Ok(()),
            Err(FrameFreeError::Corrupt(fault)) => Err(Refused::Corrupt(fault)),
            Err(_) => Err(Refused::Fairly),
        }
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        while let Some(frame) = self.allocate_frame() {
            sink(Extent::new(frame, 1));
        }
        self.fault().map_or(Ok(()), |fault| Err(Refused::Corrupt(fault)))
    }

    fn find(&self) -> Result<(), WordFault> {
        self.find_fault()
    }
}

fn page_buddy<R: Rule>(name: &str, config: BuddyConfig) {
    let tally = campaign(name, |words| {
        let mut areas = [Extent::default(); AREAS.len()];
        let map = map(&mut areas);
        let storage = Words::new(PageBuddy::<Words, R, Checked>::storage_words(&map, config));
        words(&storage);
        PageBuddy::<Words, R, Checked>::new(&map, config, storage)
            .expect("the storage has the size asked for")
    });
    judge(name, &tally);
}

#[test]
fn no_flip_breaks_bbs() {
    page_buddy::<HeadOfList>("bbs, head of list", BuddyConfig::BBS);
}

#[test]
fn no_flip_breaks_pbs_of_granularity_4() {
    page_buddy::<HeadOfList>("pbs 4, head of list", BuddyConfig::PBS_ARMV7);
}

#[test]
fn no_flip_breaks_pbs_of_granularity_9() {
    page_buddy::<HeadOfList>("pbs 9, head of list", BuddyConfig::PBS_ARMV8);
}

#[test]
fn no_flip_breaks_the_best_fit_of_granularity_4() {
    page_buddy::<BestFit>("pbs 4, best fit", BuddyConfig::PBS_ARMV7);
}

#[test]
fn no_flip_breaks_the_best_fit_of_granularity_9() {
    page_buddy::<BestFit>("pbs 9, best fit", BuddyConfig::PBS_ARMV8);
}

#[test]
fn no_flip_breaks_the_best_fit_of_one_list() {
    let config = BuddyConfig::new(9, Order::BASE).expect("one list");
    page_buddy::<BestFit>("one list, best fit", config);
}

/// A structure without a checked tier, which can only be walked.
#[derive(Clone)]
struct Unchecked<A>(A);

/// The walk's finding, whose word is not known.
fn walked(result: Result<(), &str>) -> Result<(), WordFault> {
    let unknown = WordFault { table: Table::Allocated, word: usize::MAX, value: 0 };
    result.map_err(|_| unknown)
}

impl<R: Rule> Victim for Unchecked<PageBuddy<Words, R>> {
    fn take(&mut self, random: &mut Random, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        let block = match random.below(3) {
            0 => self.0.allocate_frame().map(|frame| Extent::new(frame, 1)),
            1 => self.0.allocate_block(1 + random.below(90)),
            _ => self.0.allocate_aligned(Order::known(random.below(10) as u8)).ok(),
        };
        block.map(sink).ok_or(Refused::Fairly)
    }

    fn give(&mut self, extent: Extent) -> Result<(), Refused> {
        self.0.free(extent).map_err(|_| Refused::Fairly)
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        while let Some(frame) = self.0.allocate_frame() {
            sink(Extent::new(frame, 1));
        }
        Ok(())
    }

    fn find(&self) -> Result<(), WordFault> {
        walked(self.0.check())
    }
}

/// A zone of which single frames come back.
#[derive(Clone)]
struct Zone<Z>(Z);

impl<Z: ZoneAllocator> Victim for Zone<Z> {
    fn take(&mut self, random: &mut Random, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        let order = Order::known(random.below(8) as u8);
        let mobility = Mobility::ALL[random.below(3) as usize];
        let start = self.0.allocate(order, mobility).ok_or(Refused::Fairly)?;
        sink(Extent::new(start, order.frames()));
        Ok(())
    }

    fn give(&mut self, extent: Extent) -> Result<(), Refused> {
        let mut frames = extent.iter();
        frames.try_for_each(|frame| self.0.free(frame, Order::BASE)).map_err(|_| Refused::Fairly)
    }

    fn drain(&mut self, sink: &mut dyn FnMut(Extent)) -> Result<(), Refused> {
        while let Some(frame) = self.0.allocate(Order::BASE, Mobility::Movable) {
            sink(Extent::new(frame, 1));
        }
        Ok(())
    }

    fn find(&self) -> Result<(), WordFault> {
        walked(self.0.check())
    }
}

/// Structures that have no checked tier: nothing is promised of them, and this
/// says what a flip does. Not in the suite, since it prints a panic for many a trial:
/// `FLIPS=10000 cargo test --release -p swath-frame --test suite flips -- --ignored --nocapture`
#[test]
#[ignore = "measures what is not promised"]
fn without_a_checked_tier() {
    let span = Extent::new(Pfn::new(0), 4288);
    for (name, config) in [("bbs", BuddyConfig::BBS), ("pbs 9", BuddyConfig::PBS_ARMV8)] {
        campaign(&format!("{name}, unchecked"), |words| {
            let mut areas = [Extent::default(); AREAS.len()];
            let map = map(&mut areas);
            let storage = Words::new(PageBuddy::<Words>::storage_words(&map, config));
            words(&storage);
            Unchecked(PageBuddy::<Words>::new(&map, config, storage).expect("room"))
        });
    }
    campaign("linux zone", |words| {
        let mut areas = [Extent::default(); AREAS.len()];
        let map = map(&mut areas);
        let storage = Words::new(LinuxZone::<Words>::storage_words(span));
        words(&storage);
        Zone(LinuxZone::new(&map, span, Order::known(9), storage).expect("room"))
    });
    let banks = BankLayout::new(Pfn::new(0), 1024, Order::known(9)).expect("a layout");
    bank_zone("array", span, banks, &ArrayPlacement);
    bank_zone("list", span, banks, &ListPlacement::new(true));
    bank_zone("adaptive", span, banks, &PoolPlacement::new(PoolPolicy::PACKED));
}

fn bank_zone<P: Placement + Clone>(name: &str, span: Extent, banks: BankLayout, rule: &P) {
    campaign(name, |words| {
        let mut areas = [Extent::default(); AREAS.len()];
        let map = map(&mut areas);
        let len = BankBuddy::<Words, P>::storage_words(&map, span, banks, rule).expect("banks");
        let storage = Words::new(len);
        words(&storage);
        Zone(BankBuddy::new(&map, span, banks, rule.clone(), storage).expect("room"))
    });
}
