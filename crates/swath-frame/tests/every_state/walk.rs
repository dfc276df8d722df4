//! The walk over all states of one allocator.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{Debug, Write};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// An allocator whose states can be gone through.
pub(super) trait Subject: Clone {
    type Operation: Copy + Debug;
    type Returned: PartialEq + Debug;
    /// Which frames are out, by the naive way.
    type Model: Clone + PartialEq + Debug;

    /// True if a request that is refused may leave the same frames free in another form, as
    /// one that merges what it finds.
    const TIDIES: bool = false;

    fn apply(&mut self, operation: Self::Operation) -> Self::Returned;

    /// Returns true if the model knows that the operation is refused, and by what all words
    /// stay as they are.
    fn stays(model: &Self::Model, operation: Self::Operation) -> bool;

    /// Takes note of an operation in the model; panics if it may not have returned that.
    fn follow(model: &mut Self::Model, operation: Self::Operation, returned: &Self::Returned);

    /// Tells this state from others: by all that decides what any operation will do, what no
    /// caller can see included.
    fn name(&self, model: &Self::Model) -> u64;

    /// Walks the allocator's invariants, and states that it is in the model's state.
    fn agrees(&self, model: &Self::Model);
}

/// What was gone through.
#[derive(Debug, PartialEq)]
pub(super) struct Covered {
    pub(super) states: usize,
    /// Operations in all states.
    pub(super) transitions: usize,
    /// Sequences of four operations, from every state.
    pub(super) sequences: u128,
}

/// One state: how it was reached first, and where operations lead from it.
struct State<S: Subject> {
    model: S::Model,
    /// The state before, and the operation.
    reached: Option<(usize, S::Operation)>,
    /// For each operation that changed something.
    leads: Vec<u32>,
}

/// The allocator in one state, from all operations that lead there: a state in storage would be
/// thousands of bytes.
fn reach<S: Subject>(first: &S, states: &[State<S>], at: usize) -> S {
    let mut path: Vec<_> =
        std::iter::successors(states[at].reached, |&(before, _)| states[before].reached)
            .map(|(_, operation)| operation)
            .collect();
    let mut subject = first.clone();
    while let Some(operation) = path.pop() {
        subject.apply(operation);
    }
    subject
}

/// Goes through all `operations` in every state that they lead to from `first`.
pub(super) fn walk<S: Subject>(first: &S, model: S::Model, operations: &[S::Operation]) -> Covered {
    let mut known = HashMap::from([(first.name(&model), 0)]);
    let mut states = vec![State::<S> { model, reached: None, leads: Vec::new() }];
    let mut at = 0;
    while at < states.len() {
        let subject = reach(first, &states, at);
        let model = states[at].model.clone();
        let name = subject.name(&model);
        assert_eq!(known.get(&name), Some(&at), "the same operations lead elsewhere");
        subject.agrees(&model);
        let mut leads = Vec::new();
        // Is refused one thing after another, and stays as it was.
        let mut still = subject.clone();
        for &operation in operations {
            let mut followed = model.clone();
            if S::stays(&model, operation) {
                S::follow(&mut followed, operation, &still.apply(operation));
                assert_eq!(followed, model, "{operation:?} is to change nothing");
                continue;
            }
            let mut after = subject.clone();
            let returned = after.apply(operation);
            S::follow(&mut followed, operation, &returned);
            let name_after = after.name(&followed);
            if followed == model {
                let same = S::TIDIES || name_after == name;
                assert!(same, "{operation:?} is refused and changed {model:x?}");
                if name_after == name {
                    continue;
                }
            }
            let number = states.len();
            leads.push(match known.entry(name_after) {
                Entry::Occupied(entry) => {
                    let known = *entry.get();
                    assert_eq!(states[known].model, followed, "two states under one name");
                    known as u32
                }
                Entry::Vacant(entry) => {
                    let reached = Some((at, operation));
                    states.push(State { model: followed, reached, leads: Vec::new() });
                    *entry.insert(number) as u32
                }
            });
        }
        assert_eq!(still.name(&model), name, "a refused operation changed {model:x?}");
        states[at].leads = leads;
        at += 1;
    }
    let mut sequences = vec![1_u128; states.len()];
    for _ in 0..4 {
        let follow = |(at, state): (usize, &State<S>)| {
            let stays = (operations.len() - state.leads.len()) as u128 * sequences[at];
            stays + state.leads.iter().map(|&to| sequences[to as usize]).sum::<u128>()
        };
        sequences = states.iter().enumerate().map(follow).collect();
    }
    Covered {
        states: states.len(),
        transitions: states.len() * operations.len(),
        sequences: sequences.iter().sum(),
    }
}

/// A hash of few instructions for each word.
#[derive(Clone, Copy)]
pub(super) struct Name(u64);

impl Name {
    /// The name of what says of itself all that it is.
    pub(super) fn of(value: &impl Debug) -> u64 {
        thread_local!(static TEXT: RefCell<String> = const { RefCell::new(String::new()) });
        TEXT.with_borrow_mut(|text| {
            text.clear();
            write!(text, "{value:?}").unwrap();
            // How often which bank has moved is told, and decides nothing.
            let moves = text.split_once("PoolMoves {").map(|(before, rest)| {
                (before, rest.split_once('}').map_or("", |(_, after)| after))
            });
            let (before, after) = moves.unwrap_or((text, ""));
            let mut name = Self::default();
            name.write(before.as_bytes());
            name.write(after.as_bytes());
            name.finish()
        })
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Hasher for Name {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        for &byte in rest {
            self.write_u64(u64::from(byte) << 8 | rest.len() as u64);
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Storage that says of itself a hash of its words, which is quicker than to say them.
#[derive(Clone)]
pub(super) struct Words(pub(super) Vec<u64>);

impl Deref for Words {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

impl Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut name = Name::default();
        self.0.hash(&mut name);
        write!(f, "{:x}", name.finish())
    }
}
