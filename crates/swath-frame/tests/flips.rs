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
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::LazyLock;

use swath_arch::testing::Random;
use swath_arch::{Extent, Pfn};
use swath_frame::{ByteRange, FrameFreeError, MemoryMap, WordFault};

/// Words of which a bit flips when they are next borrowed to be changed.
#[derive(Clone)]
pub(crate) struct Words {
    words: Vec<u64>,
    flip: Rc<Cell<Option<(usize, u32)>>>,
}

impl Words {
    pub(crate) fn new(len: usize) -> Self {
        Self { words: vec![0; len], flip: Rc::default() }
    }

    /// Flips a bit when the words are next borrowed to be changed.
    pub(crate) fn flip(&self, word: usize, bit: u32) {
        self.flip.set(Some((word, bit)));
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

/// Memory with holes, inside words and of whole words, from no aligned frame to none.
pub(crate) const AREAS: [(u64, u64); 4] = [(5, 701), (703, 1900), (2048, 4099), (4200, 4288)];

/// The map of [`AREAS`], for subjects of any lifetime.
pub(crate) static MAP: LazyLock<MemoryMap<'static>> = LazyLock::new(|| {
    let ranges =
        AREAS.map(|(start, end)| ByteRange::of_frames(Extent::new(Pfn::new(start), end - start)));
    let storage = vec![Extent::default(); AREAS.len()].leak();
    MemoryMap::new(&ranges, storage).expect("the ranges are apart")
});

/// What became of a flip.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A call reported this word.
    Reported(WordFault),
    /// The walk at the end found this word.
    Walked(WordFault),
    /// The word was written over, or holds nothing now.
    Gone,
    Twice,
    Outside,
    Panicked,
    /// The structure served wrongly or lost frames without a word: where it showed.
    Silent(&'static str),
}

/// A structure to be hurt, with a model of what is out.
pub(crate) trait Subject: Clone {
    /// Makes one random call.
    fn step(&mut self, random: &mut Random) -> Result<(), Outcome>;
    /// Takes all that there is, and returns true if nothing is lost.
    fn drain(&mut self) -> Result<bool, Outcome>;
    /// Returns true if it serves anything, though it has stopped.
    fn serves(&mut self) -> bool;
    /// Walks all words.
    fn find(&self) -> Result<(), WordFault>;
    /// Chooses the word to flip a bit of, of `len`.
    fn aim(&self, random: &mut Random, len: usize) -> usize {
        random.index(len)
    }
}

/// The frames there are, and which of them are out.
#[derive(Clone)]
pub(crate) struct Model {
    mine: Vec<bool>,
    pub(crate) out: Vec<bool>,
    /// What is out, in the pieces in which it is to be freed.
    pub(crate) blocks: Vec<Extent>,
}

impl Model {
    /// The model of areas, each from its first frame to the one past its last.
    pub(crate) fn new(areas: &[(u64, u64)]) -> Self {
        let mut mine = Vec::new();
        for &(start, end) in areas {
            mine.resize(start as usize, false);
            mine.resize(end as usize, true);
        }
        Self { out: vec![false; mine.len()], mine, blocks: Vec::new() }
    }

    pub(crate) fn mark(&mut self, extent: Extent, out: bool) -> Result<(), Outcome> {
        for frame in extent.iter() {
            let at = frame.raw() as usize;
            if self.mine.get(at) != Some(&true) {
                return Err(Outcome::Outside);
            }
            if std::mem::replace(&mut self.out[at], out) && out {
                return Err(Outcome::Twice);
            }
        }
        Ok(())
    }

    pub(crate) fn took(&mut self, block: Extent) -> Result<(), Outcome> {
        self.blocks.push(block);
        self.mark(block, true)
    }

    /// Notes how a free has ended. If a wrong one was taken, what goes out twice by it counts.
    pub(crate) fn gave(
        &mut self,
        extent: Extent,
        result: Result<(), FrameFreeError>,
    ) -> Result<(), Outcome> {
        match result {
            Ok(()) => self.mark(extent, false),
            Err(FrameFreeError::Corrupt(fault)) => Err(Outcome::Reported(fault)),
            Err(_) if self.is_out(extent) => Err(Outcome::Silent("a free is refused")),
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn is_out(&self, extent: Extent) -> bool {
        extent.iter().all(|frame| self.out.get(frame.raw() as usize) == Some(&true))
    }

    pub(crate) fn is_all_out(&self) -> bool {
        self.out == self.mine
    }
}

/// Goes on with a bit to be flipped, and says what became of it.
fn trial(subject: &mut impl Subject, random: &mut Random) -> Outcome {
    for _ in 0..20 + random.below(200) {
        match subject.step(random) {
            Ok(()) => {}
            Err(Outcome::Reported(_)) if subject.serves() => {
                return Outcome::Silent("serves though it stopped");
            }
            Err(outcome) => return outcome,
        }
    }
    let found = subject.find().err();
    match (subject.drain(), found) {
        (Ok(_) | Err(Outcome::Reported(_)), Some(fault)) => Outcome::Walked(fault),
        (Err(Outcome::Reported(_)), None) => Outcome::Silent("the walk missed it"),
        (Err(outcome), _) => outcome,
        (Ok(false), None) => Outcome::Silent("frames are lost"),
        (Ok(true), None) => Outcome::Gone,
    }
}

#[derive(Default, Debug)]
struct Tally {
    reported: usize,
    walked: usize,
    /// Of both, with the word that was flipped.
    exact: usize,
    gone: usize,
    twice: usize,
    outside: usize,
    panicked: usize,
    /// How often, by where it showed.
    silent: BTreeMap<&'static str, usize>,
}

/// Hurts copies of what `build` makes, with its words; judges nothing.
fn tally<S: Subject>(name: &str, build: impl Fn() -> (S, Words)) -> Tally {
    let flips = std::env::var("FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let mut tally = Tally::default();
    let mut built = None;
    for seed in 0..flips {
        let mut random = Random::new(seed);
        if seed % 25 == 0 {
            let (mut subject, words) = build();
            for _ in 0..400 {
                let right = subject.step(&mut random).is_ok();
                assert!(right, "{name}: seed {seed}: wrong without a flip");
            }
            assert_eq!(subject.find(), Ok(()), "{name}: seed {seed}");
            built = Some((subject, words));
        }
        let Some((subject, words)) = &built else { continue };
        let (mut subject, len) = (subject.clone(), words.len());
        let word = subject.aim(&mut random, len);
        words.flip.set(Some((word, random.below(64) as u32)));
        let run = AssertUnwindSafe(|| trial(&mut subject, &mut random));
        let outcome = catch_unwind(run).unwrap_or(Outcome::Panicked);
        let (count, told) = match outcome {
            Outcome::Reported(fault) => (&mut tally.reported, Some(fault)),
            Outcome::Walked(fault) => (&mut tally.walked, Some(fault)),
            Outcome::Gone => (&mut tally.gone, None),
            Outcome::Twice => (&mut tally.twice, None),
            Outcome::Outside => (&mut tally.outside, None),
            Outcome::Panicked => (&mut tally.panicked, None),
            Outcome::Silent(what) => (tally.silent.entry(what).or_default(), None),
        };
        *count += 1;
        tally.exact += usize::from(told.is_some_and(|fault| fault.word == word));
        if told.is_none() && !matches!(outcome, Outcome::Gone) {
            println!("{name}: seed {seed}: word {word} of {len}: {outcome:?}");
        }
    }
    println!("{name}: {flips} flips: {tally:?}");
    tally
}

/// Demands of the checked tier that no flip breaks what `build` makes, with its words.
pub(crate) fn campaign<S: Subject>(name: &str, build: impl Fn() -> (S, Words)) {
    let tally = tally(name, build);
    let broken = tally.twice + tally.outside + tally.panicked;
    assert!(broken == 0 && tally.silent.is_empty(), "{name}: {tally:?}");
    assert!(tally.reported > 0 && tally.exact > 0, "{name}: {tally:?}");
}

/// Says what a flip does in the tier that checks nothing, of which nothing is promised.
pub(crate) fn measure<S: Subject>(name: &str, build: impl Fn() -> (S, Words)) {
    tally(&format!("{name}, unchecked"), build);
}
