//! Faults planted in the code under proof, one at a time.
//!
//! Each operator of the code stands at a place of its source. A fault makes one operator
//! at one place another one, wherever the code comes by it: what an editor's slip would
//! do. A proof is worth something if it fails for each of them.

use std::fmt;
use std::panic::Location;

/// An operator on words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operator {
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `!`
    Not,
    /// `<<`
    Left,
    /// `>>`
    Right,
    /// `+`, checked or not
    Plus,
    /// `-`, checked or not
    Minus,
    /// `==` or `!=`
    Equal,
    /// `<`, `<=`, `>` or `>=`
    Less,
    /// A count of the zeros at one end.
    Zeros,
    /// A constant.
    Constant,
}

impl Operator {
    /// What the faults make of the operator.
    pub(crate) const fn variants(self) -> &'static [&'static str] {
        match self {
            Self::And => &["or", "the left operand"],
            Self::Or => &["and", "the left operand"],
            Self::Xor => &["or", "the left operand"],
            Self::Not => &["nothing"],
            Self::Left => &["a right shift", "a shift by one more", "a shift by one less"],
            Self::Right => &["a left shift", "a shift by one more", "a shift by one less"],
            Self::Plus => &["a difference", "a sum and one"],
            Self::Minus => &["a sum", "a difference and one"],
            Self::Equal => &["its contrary"],
            Self::Less => &["its contrary", "its contrary where both are equal"],
            Self::Zeros => &["one more", "one less"],
            Self::Constant => &["one more", "zero"],
        }
    }
}

/// An operator at a place of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    pub(crate) at: &'static Location<'static>,
    pub(crate) operator: Operator,
    /// What a macro makes stands where it is called, in column 1 and all at one place:
    /// there, and only there, operators are told apart by the order in which they run.
    pub(crate) nth: usize,
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) site: Site,
    pub(crate) variant: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site { at, operator, nth } = self.site;
        let place = if nth > 0 { format!("{at}, number {nth}") } else { at.to_string() };
        write!(f, "{place}: {operator:?} replaced by {}", operator.variants()[self.variant])
    }
}
