//! One case of a theorem while it is proved: its graph, its solver, and the path
//! through the code.
//!
//! A branch on a symbolic word asks [`decide`]. The first time, the solver says which
//! answers are possible on this path; if both are, one is taken now and the other when
//! the case is run again. So the code is run once for each path through it, from its
//! start, and meets only answers that some input leads to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::Location;

use batsat::{BasicSolver, Lit, SolverInterface, Var, lbool};

use crate::fault::{Fault, Operator, Site};
use crate::graph::{Bit, Graph};

/// The most branches on one path: a faulty loop that never ends is found out.
const BRANCHES_MAX: usize = 10_000;

/// One answer on the path.
struct Branch {
    answer: Bit,
    /// The other answer is possible too and has not been followed.
    is_open: bool,
}

/// The state of the case that this thread proves.
pub(crate) struct Session {
    pub(crate) graph: Graph,
    solver: BasicSolver,
    vars: HashMap<u32, Var>,
    path: Vec<Branch>,
    /// Branches of the path that this run has met so far.
    met: usize,
    words: Vec<(String, [Bit; 64])>,
    words_met: usize,
    /// Operations outside of the code under proof are left alone.
    is_specification: bool,
    /// Operators of macros that this run has met so far.
    in_macros: HashMap<(&'static str, u32, Operator), usize>,
    pub(crate) claims: u64,
    pub(crate) sites: Vec<Site>,
    fault: Option<Fault>,
}

/// Ends a run: unwound with as a payload.
pub(crate) enum Stop {
    /// No input gets here.
    Infeasible,
    /// A claim does not hold, or the code does not end.
    Refuted(Refutation),
}

/// An input for which a claim does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refutation {
    /// The claim.
    pub claim: String,
    /// The place of the claim, or of the operation that is at fault.
    pub at: String,
    /// Each word of the input with its value.
    pub input: Vec<(String, u64)>,
}

impl std::fmt::Display for Refutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.claim, self.at)?;
        for (i, (name, value)) in self.input.iter().enumerate() {
            let separator = if i == 0 { ", for" } else { "," };
            write!(f, "{separator} {name} = {value:#x}")?;
        }
        Ok(())
    }
}

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

/// Calls `f` with the session of this thread.
pub(crate) fn with<T>(f: impl FnOnce(&mut Session) -> T) -> T {
    SESSION.with_borrow_mut(|session| f(session.as_mut().expect("symbolic words live in a proof")))
}

/// Begins a case, with a fault in the code or without.
pub(crate) fn begin(fault: Option<Fault>) {
    SESSION.set(Some(Session {
        graph: Graph::new(),
        solver: BasicSolver::default(),
        vars: HashMap::new(),
        path: Vec::new(),
        met: 0,
        words: Vec::new(),
        words_met: 0,
        is_specification: false,
        in_macros: HashMap::new(),
        claims: 0,
        sites: Vec::new(),
        fault,
    }));
}

/// Ends the case and returns what it was.
pub(crate) fn end() -> Session {
    SESSION.take().expect("a case has begun")
}

/// Unwinds out of the code.
pub(crate) fn stop(stop: Stop) -> ! {
    std::panic::resume_unwind(Box::new(stop))
}

/// Returns the answer to a condition on this path.
pub(crate) fn decide(condition: Bit) -> bool {
    if let Some(value) = condition.constant() {
        return value;
    }
    match with(|session| session.decide(condition)) {
        Ok(answer) => answer,
        Err(ended) => stop(ended),
    }
}

/// Restricts the case to inputs for which the condition holds.
pub fn assume(condition: impl Into<Bit>) {
    let condition = condition.into();
    if condition != Bit::TRUE && !with(|session| session.assume(condition)) {
        stop(Stop::Infeasible);
    }
}

/// States that the condition holds for every input that gets here.
#[track_caller]
pub fn claim(condition: impl Into<Bit>, what: &str) {
    let (condition, at) = (condition.into(), Location::caller());
    if let Some(refutation) = with(|session| session.refute(condition, what, at)) {
        stop(Stop::Refuted(refutation));
    }
}

/// Runs `f` as specification: its operations are no part of the code under proof.
pub fn specify<T>(f: impl FnOnce() -> T) -> T {
    let was = with(|session| std::mem::replace(&mut session.is_specification, true));
    let value = f();
    with(|session| session.is_specification = was);
    value
}

impl Session {
    /// Begins the next run from the start of the code; false if every path has been
    /// followed.
    pub(crate) fn next_path(&mut self) -> bool {
        self.met = 0;
        self.words_met = 0;
        self.is_specification = false;
        self.in_macros.clear();
        while let Some(last) = self.path.pop() {
            if last.is_open {
                self.path.push(Branch { answer: !last.answer, is_open: false });
                return true;
            }
        }
        false
    }

    /// Returns the next word of the input, the same in every run.
    pub(crate) fn word(&mut self, name: &str) -> [Bit; 64] {
        if self.words_met == self.words.len() {
            let bits = std::array::from_fn(|_| self.graph.input());
            self.words.push((name.to_owned(), bits));
        }
        self.words_met += 1;
        self.words[self.words_met - 1].1
    }

    /// Notes an operator of the code under proof; returns the fault to make there.
    pub(crate) fn operator(
        &mut self,
        operator: Operator,
        at: &'static Location<'static>,
    ) -> Option<usize> {
        if self.is_specification {
            return None;
        }
        let mut nth = 0;
        if at.column() == 1 {
            let met = self.in_macros.entry((at.file(), at.line(), operator)).or_insert(0);
            (nth, *met) = (*met, *met + 1);
        }
        let site = Site { at, operator, nth };
        if !self.sites.contains(&site) {
            self.sites.push(site);
        }
        self.fault.as_ref().filter(|fault| fault.site == site).map(|fault| fault.variant)
    }

    fn decide(&mut self, condition: Bit) -> Result<bool, Stop> {
        if self.met == self.path.len() {
            if self.met == BRANCHES_MAX {
                let input = self.model(&[]).unwrap_or_default();
                let (claim, at) = ("the code ends".to_owned(), "a loop".to_owned());
                return Err(Stop::Refuted(Refutation { claim, at, input }));
            }
            let (yes, no) = (self.is_possible(condition), self.is_possible(!condition));
            if !yes && !no {
                return Err(Stop::Infeasible);
            }
            let answer = if yes { condition } else { !condition };
            self.path.push(Branch { answer, is_open: yes && no });
        }
        let answer = self.path[self.met].answer;
        assert!(
            answer == condition || answer == !condition,
            "a run of the code differs from the one before"
        );
        self.met += 1;
        Ok(answer == condition)
    }

    fn assume(&mut self, condition: Bit) -> bool {
        if self.met == self.path.len() {
            if !self.is_possible(condition) {
                return false;
            }
            self.path.push(Branch { answer: condition, is_open: false });
        }
        self.met += 1;
        true
    }

    fn refute(
        &mut self,
        condition: Bit,
        what: &str,
        at: &'static Location<'static>,
    ) -> Option<Refutation> {
        self.claims += 1;
        if condition == Bit::TRUE {
            return None;
        }
        let input = self.model(&[!condition])?;
        Some(Refutation { claim: what.to_owned(), at: at.to_string(), input })
    }

    /// Returns an input of this path, for the report of a panic in the code.
    pub(crate) fn input_of_path(&mut self) -> Vec<(String, u64)> {
        self.model(&[]).unwrap_or_default()
    }

    fn is_possible(&mut self, condition: Bit) -> bool {
        condition != Bit::FALSE && self.solve(&[condition])
    }

    /// Returns true if an input of this path meets the conditions.
    fn solve(&mut self, conditions: &[Bit]) -> bool {
        let path: Vec<Bit> = self.path[..self.met].iter().map(|branch| branch.answer).collect();
        let assumed = path.iter().chain(conditions);
        let assumed: Vec<Lit> = assumed.map(|&bit| self.lit(bit)).collect();
        self.solver.solve_limited(&assumed) == lbool::TRUE
    }

    fn model(&mut self, conditions: &[Bit]) -> Option<Vec<(String, u64)>> {
        if !self.solve(conditions) {
            return None;
        }
        let value = |bit: Bit| {
            let var = self.vars.get(&bit.node());
            var.is_some_and(|&var| self.solver.value_var(var) == lbool::TRUE)
        };
        let word = |bits: &[Bit; 64]| {
            bits.iter().enumerate().fold(0, |word, (i, &bit)| word | u64::from(value(bit)) << i)
        };
        Some(self.words.iter().map(|(name, bits)| (name.clone(), word(bits))).collect())
    }

    /// Returns the solver's literal for a bit; the clauses of the nodes below it are added
    /// where they are not there yet.
    fn lit(&mut self, bit: Bit) -> Lit {
        let mut left = vec![bit.node()];
        while let Some(&node) = left.last() {
            if self.vars.contains_key(&node) {
                left.pop();
                continue;
            }
            let Some(operands) = self.graph.operands(node) else {
                let var = self.solver.new_var_default();
                self.vars.insert(node, var);
                if node == 0 {
                    self.solver.add_clause_reuse(&mut vec![Lit::new(var, false)]);
                }
                continue;
            };
            let before = left.len();
            left.extend(operands.iter().map(|operand| operand.node()));
            left.retain({
                let mut at = 0;
                let vars = &self.vars;
                move |node| {
                    at += 1;
                    at <= before || !vars.contains_key(node)
                }
            });
            if left.len() > before {
                continue;
            }
            let var = self.solver.new_var_default();
            self.vars.insert(node, var);
            let of = |bit: Bit| Lit::new(self.vars[&bit.node()], !bit.is_complement());
            let (out, [a, b]) = (Lit::new(var, true), operands.map(of));
            for mut clause in [vec![!out, a], vec![!out, b], vec![out, !a, !b]] {
                self.solver.add_clause_reuse(&mut clause);
            }
        }
        Lit::new(self.vars[&bit.node()], !bit.is_complement())
    }
}
