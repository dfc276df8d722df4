//! Boolean functions as a graph of conjunctions with complemented edges.
//!
//! Equal functions of equal inputs are mostly one node, since every node is made once
//! and the plain simplifications are made at once: what code and specification compute
//! in the same way never reaches the solver.

use std::collections::HashMap;

/// A boolean function: a node of the graph, or its complement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bit(u32);

impl Bit {
    /// The constant false.
    pub const FALSE: Self = Self(0);
    /// The constant true.
    pub const TRUE: Self = Self(1);

    /// Returns the node that this is, or is the complement of.
    pub(crate) const fn node(self) -> u32 {
        self.0 >> 1
    }

    /// Returns true if this is the complement of its node.
    pub(crate) const fn is_complement(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns the complement of this, if `if_true`.
    const fn flipped(self, if_true: bool) -> Self {
        Self(self.0 ^ if_true as u32)
    }

    /// Returns the value, if it is a constant.
    pub(crate) const fn constant(self) -> Option<bool> {
        match self {
            Self::FALSE => Some(false),
            Self::TRUE => Some(true),
            _ => None,
        }
    }
}

impl From<bool> for Bit {
    fn from(value: bool) -> Self {
        Self::FALSE.flipped(value)
    }
}

impl std::ops::Not for Bit {
    type Output = Self;

    fn not(self) -> Self {
        self.flipped(true)
    }
}

/// The nodes. Node 0 is the constant; an input has no operands.
pub(crate) struct Graph {
    nodes: Vec<Option<[Bit; 2]>>,
    known: HashMap<[Bit; 2], Bit>,
}

impl Graph {
    pub(crate) fn new() -> Self {
        Self { nodes: vec![None], known: HashMap::new() }
    }

    /// Returns the operands of a node that is a conjunction.
    pub(crate) fn operands(&self, node: u32) -> Option<[Bit; 2]> {
        self.nodes[node as usize]
    }

    /// Adds an input.
    pub(crate) fn input(&mut self) -> Bit {
        self.push(None)
    }

    fn push(&mut self, operands: Option<[Bit; 2]>) -> Bit {
        let number = u32::try_from(self.nodes.len()).expect("a graph of 2^31 nodes");
        self.nodes.push(operands);
        Bit(number << 1)
    }

    pub(crate) fn and(&mut self, a: Bit, b: Bit) -> Bit {
        let [a, b] = if a <= b { [a, b] } else { [b, a] };
        if a == Bit::FALSE || a == !b {
            return Bit::FALSE;
        }
        if a == Bit::TRUE || a == b {
            return b;
        }
        if let Some(&known) = self.known.get(&[a, b]) {
            return known;
        }
        let new = self.push(Some([a, b]));
        self.known.insert([a, b], new);
        new
    }

    pub(crate) fn or(&mut self, a: Bit, b: Bit) -> Bit {
        !self.and(!a, !b)
    }

    pub(crate) fn xor(&mut self, a: Bit, b: Bit) -> Bit {
        // Complements are moved out, so that a ^ b and !a ^ b share their nodes.
        let flip = a.is_complement() != b.is_complement();
        let (a, b) = (Bit(a.0 & !1), Bit(b.0 & !1));
        let (left, right) = (self.and(a, !b), self.and(!a, b));
        self.or(left, right).flipped(flip)
    }

    /// Returns `then` where `condition` holds and `other` elsewhere.
    pub(crate) fn select(&mut self, condition: Bit, then: Bit, other: Bit) -> Bit {
        let (left, right) = (self.and(condition, then), self.and(!condition, other));
        self.or(left, right)
    }
}
