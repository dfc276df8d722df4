//! Symbolic words: 64 boolean functions of the input.

use std::cmp::Ordering;
use std::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Not, Shl, Shr,
    Sub, SubAssign,
};
use std::panic::Location;

use swath_arch::Word;

use crate::fault::Operator;
use crate::graph::{Bit, Graph};
use crate::session::{Refutation, Stop, claim, decide, specify, stop, with};

/// A word of which each bit is a function of the input.
///
/// It computes what `u64` computes, overflow being an error as in a debug build. A
/// comparison, or a count of zeros, branches: the case is run once for each answer.
#[derive(Clone, Copy, Debug)]
pub struct Symbol([Bit; 64]);

impl Symbol {
    /// Returns an input: any word.
    pub fn any(name: &str) -> Self {
        Self(with(|session| session.word(name)))
    }

    /// Returns the bit `number`.
    pub const fn bit(self, number: usize) -> Bit {
        self.0[number]
    }

    /// Returns the word whose bits `bit` says.
    pub fn from_bits(bit: impl FnMut(usize) -> Bit) -> Self {
        Self(std::array::from_fn(bit))
    }

    /// Returns the condition that this is `other`. It does not branch: for specifications.
    pub fn equals(self, other: impl Into<Self>) -> Bit {
        let other = specify(|| other.into());
        with(|session| equal(&mut session.graph, self, other))
    }

    /// Returns the condition that this is below `other`. It does not branch.
    pub fn is_below(self, other: impl Into<Self>) -> Bit {
        let other = specify(|| other.into());
        with(|session| below(&mut session.graph, self, other))
    }
}

impl Bit {
    /// Returns the condition that both hold or neither.
    pub fn is(self, other: Self) -> Self {
        if self == other {
            return Self::TRUE;
        }
        !with(|session| session.graph.xor(self, other))
    }
}

/// Returns the conjunction.
pub fn all(bits: impl IntoIterator<Item = Bit>) -> Bit {
    let mut bits = bits.into_iter().filter(|&bit| bit != Bit::TRUE);
    let Some(first) = bits.next() else { return Bit::TRUE };
    bits.fold(first, |all, bit| with(|session| session.graph.and(all, bit)))
}

/// Returns the disjunction.
pub fn any(bits: impl IntoIterator<Item = Bit>) -> Bit {
    !all(bits.into_iter().map(|bit| !bit))
}

fn equal(graph: &mut Graph, a: Symbol, b: Symbol) -> Bit {
    a.0.iter().zip(b.0).fold(Bit::TRUE, |same, (&a, b)| {
        let differ = graph.xor(a, b);
        graph.and(same, !differ)
    })
}

fn below(graph: &mut Graph, a: Symbol, b: Symbol) -> Bit {
    // From the lowest bit up: the highest that differs decides.
    a.0.iter().zip(b.0).fold(Bit::FALSE, |below, (&a, b)| {
        let differ = graph.xor(a, b);
        graph.select(differ, b, below)
    })
}

/// Returns the sum with what is carried out of it.
fn sum(graph: &mut Graph, a: Symbol, b: Symbol, carry: Bit) -> (Symbol, Bit) {
    let mut carry = carry;
    let bits = std::array::from_fn(|i| {
        let (a, b) = (a.0[i], b.0[i]);
        let differ = graph.xor(a, b);
        let bit = graph.xor(differ, carry);
        carry = graph.select(differ, carry, a);
        bit
    });
    (Symbol(bits), carry)
}

fn difference(graph: &mut Graph, a: Symbol, b: Symbol, borrow: Bit) -> (Symbol, Bit) {
    let complement = Symbol(b.0.map(|bit| !bit));
    let (bits, carry) = sum(graph, a, complement, !borrow);
    (bits, !carry)
}

fn left(word: Symbol, by: usize) -> Symbol {
    Symbol(std::array::from_fn(|i| i.checked_sub(by).map_or(Bit::FALSE, |from| word.0[from])))
}

fn right(word: Symbol, by: usize) -> Symbol {
    Symbol(std::array::from_fn(|i| word.0.get(i + by).copied().unwrap_or(Bit::FALSE)))
}

/// Returns the fault to make at an operator of the code.
fn fault(operator: Operator, at: &'static Location<'static>) -> Option<usize> {
    with(|session| session.operator(operator, at))
}

/// Ends the run, as an overflow ends a debug build.
fn overflow(what: &str, at: &'static Location<'static>) -> ! {
    let input = with(|session| session.input_of_path());
    let claim = format!("{what} does not overflow");
    stop(Stop::Refuted(Refutation { claim, at: at.to_string(), input }))
}

/// Adds or subtracts; with a fault, in another way. The second result is true on overflow.
fn arithmetic(
    operator: Operator,
    a: Symbol,
    b: Symbol,
    at: &'static Location<'static>,
) -> (Symbol, Bit) {
    let fault = fault(operator, at);
    let is_sum = (operator == Operator::Plus) != (fault == Some(0));
    let more = Bit::from(fault == Some(1));
    with(|session| {
        let graph = &mut session.graph;
        if is_sum { sum(graph, a, b, more) } else { difference(graph, a, b, more) }
    })
}

/// Adds or subtracts where an overflow is an error.
#[track_caller]
fn checked(operator: Operator, a: Symbol, b: Symbol) -> Symbol {
    let at = Location::caller();
    let (word, is_over) = arithmetic(operator, a, b, at);
    if decide(is_over) {
        overflow("a sum or difference", at);
    }
    word
}

/// Shifts by a number; with a fault, in another way.
#[track_caller]
fn shifted(operator: Operator, word: Symbol, by: usize) -> Symbol {
    let at = Location::caller();
    let fault = fault(operator, at);
    let by = match fault {
        Some(1) => by + 1,
        Some(2) => by.saturating_sub(1),
        _ => by,
    };
    if by >= 64 {
        overflow("a shift", at);
    }
    if (operator == Operator::Left) != (fault == Some(0)) {
        left(word, by)
    } else {
        right(word, by)
    }
}

/// Returns the answer of a comparison on this path; with a fault, another.
#[track_caller]
fn compared(a: Symbol, b: Symbol, swap: bool, contrary: bool) -> bool {
    let fault = fault(Operator::Less, Location::caller());
    let condition = with(|session| {
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let less = below(&mut session.graph, a, b);
        let same = equal(&mut session.graph, a, b);
        match fault {
            None => less,
            Some(0) => !less,
            Some(_) => session.graph.xor(less, same),
        }
    });
    decide(condition) != contrary
}

macro_rules! bitwise {
    ($($trait:ident $method:ident, $assign:ident $assigned:ident: $operator:ident $with:ident $other:ident;)*) => {$(
        impl $trait for Symbol {
            type Output = Self;

            #[track_caller]
            fn $method(self, other: Self) -> Self {
                let fault = fault(Operator::$operator, Location::caller());
                let bit = |graph: &mut Graph, i: usize| match fault {
                    None => graph.$with(self.0[i], other.0[i]),
                    Some(0) => graph.$other(self.0[i], other.0[i]),
                    Some(_) => self.0[i],
                };
                with(|session| Self(std::array::from_fn(|i| bit(&mut session.graph, i))))
            }
        }

        impl $assign for Symbol {
            #[track_caller]
            fn $assigned(&mut self, other: Self) {
                *self = self.$method(other);
            }
        }
    )*};
}

bitwise! {
    BitAnd bitand, BitAndAssign bitand_assign: And and or;
    BitOr bitor, BitOrAssign bitor_assign: Or or and;
    BitXor bitxor, BitXorAssign bitxor_assign: Xor xor or;
}

impl Not for Symbol {
    type Output = Self;

    #[track_caller]
    fn not(self) -> Self {
        let fault = fault(Operator::Not, Location::caller());
        if fault.is_some() { self } else { Self(self.0.map(|bit| !bit)) }
    }
}

impl Shl<usize> for Symbol {
    type Output = Self;

    #[track_caller]
    fn shl(self, by: usize) -> Self {
        shifted(Operator::Left, self, by)
    }
}

impl Shr<usize> for Symbol {
    type Output = Self;

    #[track_caller]
    fn shr(self, by: usize) -> Self {
        shifted(Operator::Right, self, by)
    }
}

impl Add for Symbol {
    type Output = Self;

    #[track_caller]
    fn add(self, other: Self) -> Self {
        checked(Operator::Plus, self, other)
    }
}

impl AddAssign for Symbol {
    #[track_caller]
    fn add_assign(&mut self, other: Self) {
        *self = checked(Operator::Plus, *self, other);
    }
}

impl Sub for Symbol {
    type Output = Self;

    #[track_caller]
    fn sub(self, other: Self) -> Self {
        checked(Operator::Minus, self, other)
    }
}

impl SubAssign for Symbol {
    #[track_caller]
    fn sub_assign(&mut self, other: Self) {
        *self = checked(Operator::Minus, *self, other);
    }
}

impl PartialEq for Symbol {
    #[track_caller]
    fn eq(&self, other: &Self) -> bool {
        let fault = fault(Operator::Equal, Location::caller());
        let same = with(|session| equal(&mut session.graph, *self, *other));
        decide(same) != fault.is_some()
    }
}

impl Eq for Symbol {}

impl PartialOrd for Symbol {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[track_caller]
    fn lt(&self, other: &Self) -> bool {
        compared(*self, *other, false, false)
    }

    #[track_caller]
    fn gt(&self, other: &Self) -> bool {
        compared(*self, *other, true, false)
    }

    #[track_caller]
    fn le(&self, other: &Self) -> bool {
        compared(*self, *other, true, true)
    }

    #[track_caller]
    fn ge(&self, other: &Self) -> bool {
        compared(*self, *other, false, true)
    }
}

impl Ord for Symbol {
    #[track_caller]
    fn cmp(&self, other: &Self) -> Ordering {
        if compared(*self, *other, false, false) {
            Ordering::Less
        } else if compared(*other, *self, false, false) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }

    #[track_caller]
    fn min(self, other: Self) -> Self {
        if compared(other, self, false, false) { other } else { self }
    }

    #[track_caller]
    fn max(self, other: Self) -> Self {
        if compared(other, self, false, false) { self } else { other }
    }
}

impl From<u64> for Symbol {
    #[track_caller]
    fn from(value: u64) -> Self {
        let value = match fault(Operator::Constant, Location::caller()) {
            None => value,
            Some(0) => value.wrapping_add(1),
            Some(_) => 0,
        };
        Self(std::array::from_fn(|i| Bit::from(value >> i & 1 == 1)))
    }
}

impl Word for Symbol {
    const ZERO: Self = Self([Bit::FALSE; 64]);
    const MAX: Self = Self([Bit::TRUE; 64]);

    #[track_caller]
    fn wrapping_add(self, other: Self) -> Self {
        arithmetic(Operator::Plus, self, other, Location::caller()).0
    }

    #[track_caller]
    fn wrapping_sub(self, other: Self) -> Self {
        arithmetic(Operator::Minus, self, other, Location::caller()).0
    }

    #[track_caller]
    fn shifted_left(self, by: Self) -> Self {
        let at = Location::caller();
        let fault = fault(Operator::Left, at);
        let too_far = any(by.0[6..].iter().copied());
        if decide(too_far) {
            overflow("a shift", at);
        }
        (0..6).fold(self, |word, power| {
            let moved =
                if fault == Some(0) { right(word, 1 << power) } else { left(word, 1 << power) };
            let moves = match fault {
                Some(1) => !by.0[power],
                Some(2) if power == 5 => Bit::FALSE,
                _ => by.0[power],
            };
            with(|session| Self::select(&mut session.graph, moves, moved, word))
        })
    }

    #[track_caller]
    fn trailing_zeros(self) -> u32 {
        let fault = fault(Operator::Zeros, Location::caller());
        let zeros = (0..64).position(|i| decide(self.0[i])).unwrap_or(64) as u32;
        miscounted(zeros, fault)
    }

    #[track_caller]
    fn leading_zeros(self) -> u32 {
        let fault = fault(Operator::Zeros, Location::caller());
        let zeros = (0..64).position(|i| decide(self.0[63 - i])).unwrap_or(64) as u32;
        miscounted(zeros, fault)
    }

    #[track_caller]
    fn trailing_ones(self) -> u32 {
        let fault = fault(Operator::Zeros, Location::caller());
        let ones = (0..64).position(|i| !decide(self.0[i])).unwrap_or(64) as u32;
        miscounted(ones, fault)
    }

    #[track_caller]
    fn leading_ones(self) -> u32 {
        let fault = fault(Operator::Zeros, Location::caller());
        let ones = (0..64).position(|i| !decide(self.0[63 - i])).unwrap_or(64) as u32;
        miscounted(ones, fault)
    }

    #[track_caller]
    fn ilog2(self) -> u32 {
        let fault = fault(Operator::Zeros, Location::caller());
        let at = Location::caller();
        let Some(zeros) = (0..64).position(|i| decide(self.0[63 - i])) else {
            overflow("a logarithm", at);
        };
        miscounted(63 - zeros as u32, fault)
    }

    #[track_caller]
    fn checked_add(self, other: Self) -> Option<Self> {
        let (word, is_over) = arithmetic(Operator::Plus, self, other, Location::caller());
        (!decide(is_over)).then_some(word)
    }

    #[track_caller]
    fn checked_sub(self, other: Self) -> Option<Self> {
        let (word, is_over) = arithmetic(Operator::Minus, self, other, Location::caller());
        (!decide(is_over)).then_some(word)
    }

    #[track_caller]
    fn saturating_add(self, other: Self) -> Self {
        let (word, is_over) = arithmetic(Operator::Plus, self, other, Location::caller());
        with(|session| Self::select(&mut session.graph, is_over, Self::MAX, word))
    }

    #[track_caller]
    fn saturating_sub(self, other: Self) -> Self {
        let (word, is_over) = arithmetic(Operator::Minus, self, other, Location::caller());
        with(|session| Self::select(&mut session.graph, is_over, Self::ZERO, word))
    }
}

/// Returns a count, with a fault another one.
fn miscounted(count: u32, fault: Option<usize>) -> u32 {
    match fault {
        None => count,
        Some(0) => count + 1,
        Some(_) => count.saturating_sub(1),
    }
}

impl Symbol {
    fn select(graph: &mut Graph, condition: Bit, then: Self, other: Self) -> Self {
        Self(std::array::from_fn(|i| graph.select(condition, then.0[i], other.0[i])))
    }

    /// States that this is `other` for every input that gets here.
    #[track_caller]
    pub fn must_be(self, other: impl Into<Self>, what: &str) {
        claim(self.equals(other), what);
    }
}
