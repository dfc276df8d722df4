//! More CPUs than there are: what calls would cost each of them, by a model of cache lines and locks.
//!
//! The calls of all CPUs run in turn in one thread under valgrind's lackey, which writes down every instruction and
//! access. Here they are priced: an instruction, an access to a line that another CPU has
//! written or has to give up (a **transfer**), and the wait for a lock that another CPU has, as its clock tells. What is
//! on the stack is nobody else's. It is a model, not a measurement; both allocators are priced by it alike. Retries of
//! atomic steps, of which LLFree has more, cost nothing in it, and a lock that can be done without is waited for.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use swath_frame::front::{Fifo, Gather};

use crate::contender::Contender;
use crate::failure::{Failure, setup};
use crate::options::Options;
use crate::ours::{Made, Ours};
use crate::patterns::{Pattern, Plan};
use crate::simulated::{self, MarkedLock};
use crate::theirs::Theirs;

/// Nanoseconds of an instruction: some 1.3 a cycle of 3 GHz, as calls full of atomic steps run.
const INSTRUCTION_NS: f64 = 0.25;

/// Nanoseconds of a transfer from one core's cache to another's.
const TRANSFER_NS: f64 = 70.0;

/// Nanoseconds of a transfer of the line after the one before, which has been fetched ahead.
const NEXT_LINE_NS: f64 = 10.0;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// The most CPUs.
pub(crate) const CPUS_MOST: usize = 64;

/// Calls of each CPU that are counted, about; the most blocks that one holds.
const CALLS: usize = 1 << 9;

/// Bytes around a variable of the first function that are its thread's stack.
const STACK: u64 = 4 << 20;

/// What a trace says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// From here on no CPU is in a call.
    Idle,
    /// The next write is that which takes a lock.
    Lock,
    /// The next write is that which gives it back.
    Unlock,
    /// A CPU is in a call of a part of the pattern, or of none that counts.
    Call { cpu: usize, part: Option<usize> },
}

impl Mark {
    /// Marks that there are.
    pub(crate) const COUNT: usize = 3 + 3 * CPUS_MOST;

    pub(crate) fn number(self) -> usize {
        match self {
            Self::Idle => 0,
            Self::Lock => 1,
            Self::Unlock => 2,
            Self::Call { cpu, part } => 3 + part.map_or(2, |part| part) * CPUS_MOST + cpu,
        }
    }

    fn new(number: usize) -> Option<Self> {
        Some(match number {
            0 => Self::Idle,
            1 => Self::Lock,
            2 => Self::Unlock,
            3..Self::COUNT => {
                let (part, cpu) = ((number - 3) / CPUS_MOST, (number - 3) % CPUS_MOST);
                Self::Call { cpu, part: (part < 2).then_some(part) }
            }
            _ => return None,
        })
    }
}

/// What the calls of a part cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    calls: u64,
    transfers: u64,
    nanos: f64,
}

/// The caches and the locks of a machine, and its CPUs' clocks.
struct Machine {
    /// The CPUs that have each line.
    lines: HashMap<u64, u64>,
    /// When each lock was held, in order: what touches is one.
    held: HashMap<u64, Vec<(f64, f64)>>,
    /// The locks that are held, each with when it was asked for.
    asked: Vec<(u64, f64)>,
    clocks: [f64; CPUS_MOST],
    /// The line that each CPU had last from another one.
    last: [u64; CPUS_MOST],
}

/// Notes that a lock was held for so long, as soon after `from` as it was free for that time; returns how long that
/// is to wait.
fn hold(held: &mut Vec<(f64, f64)>, from: f64, nanos: f64) -> f64 {
    let mut start = from;
    let mut at = held.partition_point(|&(_, end)| end <= from);
    while let Some(&(taken, given)) = held.get(at)
        && taken < start + nanos
    {
        (start, at) = (given, at + 1);
    }
    held.insert(at, (start, start + nanos));
    if held.get(at + 1).is_some_and(|next| next.0 <= start + nanos) {
        held[at].1 = held.remove(at + 1).1;
    }
    if at > 0 && held[at - 1].1 >= start {
        held[at - 1].1 = held.remove(at).1;
    }
    start - from
}

/// What happens to a lock at the next write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Take,
    Give,
}

/// Prices a trace.
struct Pricing {
    machine: Machine,
    parts: [Cost; 2],
    /// The call under way: its CPU and part, and the clock and the transfers at its begin.
    call: Option<(usize, Option<usize>, f64, u64)>,
    transfers: u64,
    turn: Option<Turn>,
    /// A load that may be the first half of what its instruction does to that place in one step.
    loaded: Option<u64>,
}

impl Pricing {
    fn new() -> Self {
        let machine = Machine {
            lines: HashMap::new(),
            held: HashMap::new(),
            asked: Vec::new(),
            clocks: [0.0; CPUS_MOST],
            last: [0; CPUS_MOST],
        };
        Self {
            machine,
            parts: [Cost::default(); 2],
            call: None,
            transfers: 0,
            turn: None,
            loaded: None,
        }
    }

    fn mark(&mut self, mark: Mark) {
        self.load();
        match mark {
            Mark::Lock => self.turn = Some(Turn::Take),
            Mark::Unlock => self.turn = Some(Turn::Give),
            Mark::Call { cpu, part } => {
                self.call = Some((cpu, part, self.machine.clocks[cpu], self.transfers));
            }
            Mark::Idle => {
                if let Some((cpu, Some(part), clock, transfers)) = self.call.take() {
                    let cost = &mut self.parts[part];
                    cost.calls += 1;
                    cost.nanos += self.machine.clocks[cpu] - clock;
                    cost.transfers += self.transfers - transfers;
                }
            }
        }
    }

    fn instruction(&mut self) {
        if let Some((cpu, ..)) = self.call {
            self.machine.clocks[cpu] += INSTRUCTION_NS;
        }
    }

    /// Prices a load that was no half of an atomic step.
    fn load(&mut self) {
        if let Some(address) = self.loaded.take() {
            self.access(address, false);
        }
    }

    fn access(&mut self, address: u64, writes: bool) {
        let Some((cpu, ..)) = self.call else { return };
        let (line, clock) = (address / LINE, &mut self.machine.clocks[cpu]);
        let holders = self.machine.lines.entry(line).or_default();
        let others = *holders & !(1 << cpu);
        // A line that some have read stays with them until one writes to it.
        if others != 0 && (writes || *holders & 1 << cpu == 0) {
            let last = std::mem::replace(&mut self.machine.last[cpu], line);
            *clock += if line == last + 1 { NEXT_LINE_NS } else { TRANSFER_NS };
            self.transfers += 1;
        }
        *holders = 1 << cpu | if writes { 0 } else { *holders };
        if writes && let Some(turn) = self.turn.take() {
            let Machine { held, asked, clocks, .. } = &mut self.machine;
            let clock = &mut clocks[cpu];
            match turn {
                Turn::Take => asked.push((address, *clock)),
                Turn::Give => {
                    // Calls are traced one after the other, in another order than that of the clocks.
                    let at = asked.iter().rposition(|&(lock, _)| lock == address);
                    let Some((_, from)) = at.map(|at| asked.remove(at)) else { return };
                    *clock += hold(held.entry(address).or_default(), from, *clock - from);
                }
            }
        }
    }

    /// Takes a line such as ` M 1ffefffe40,8`.
    fn line(&mut self, line: &str, marks: u64, stack: u64) {
        if line.starts_with("I ") {
            self.load();
            return self.instruction();
        }
        let (kind, rest) = match line.as_bytes() {
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', ..] => (*kind, &line[3..]),
            _ => return,
        };
        let address = rest.split(',').next().map(|hex| u64::from_str_radix(hex, 16));
        let Some(Ok(address)) = address else { return };
        if let Some(mark) = Mark::new((address.wrapping_sub(marks) / 8) as usize) {
            if kind != b'L' {
                self.mark(mark);
            }
        } else if address.abs_diff(stack) > STACK {
            // Valgrind has an atomic step of another kind than an exchange load the place and then exchange it.
            if kind == b'L' || self.loaded != Some(address) {
                self.load();
            }
            self.loaded = (kind == b'L').then_some(address);
            if kind != b'L' {
                self.access(address, true);
            }
        }
    }
}

/// What one allocator's calls would cost in a pattern, by part.
fn price<C: Contender>(pattern: Pattern, plan: Plan) -> Result<[Cost; 2], Failure> {
    let Plan { frames, threads, order, calls } = plan;
    let name = format!("{}/{}/{frames}/{threads}/{order}/{calls}", C::NAME, pattern.name());
    let program =
        std::env::current_exe().map_err(|error| setup(format!("this program: {error}")))?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "--log-fd=2"])
        .arg(program)
        .args(["simulate", &name])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| setup(format!("valgrind: {error}")))?;
    let stderr = child.stderr.take().ok_or_else(|| setup("valgrind has no output"))?;
    let mut trace = BufReader::with_capacity(1 << 20, stderr);
    let (mut line, mut place) = (String::new(), None);
    let mut pricing = Pricing::new();
    let read = |error| Failure::Result(format!("{name}: {error}"));
    let mut said = String::new();
    while trace.read_line(&mut line).map_err(read)? > 0 {
        if let Some((marks, stack)) = place {
            pricing.line(&line, marks, stack);
        } else {
            place = places(&line);
        }
        if !matches!(line.as_bytes(), [b'I' | b' ' | b'=', ..]) {
            said.push_str(&line);
        }
        line.clear();
    }
    let status = child.wait().map_err(read)?;
    let counted = pattern.parts().iter().zip(&pricing.parts).all(|(_, cost)| cost.calls > 0);
    if !status.success() || !counted {
        return Err(Failure::Result(format!("{name}: {status}: {said}")));
    }
    Ok(pricing.parts)
}

/// Where the marks and the stack are, of a line `marks N stack N`.
fn places(line: &str) -> Option<(u64, u64)> {
    let (marks, stack) = line.trim_end().strip_prefix("marks ")?.split_once(" stack ")?;
    Some((marks.parse().ok()?, stack.parse().ok()?))
}

/// Runs the pattern whose trace is asked for.
pub(crate) fn simulate(name: &str) -> Result<(), Failure> {
    let unknown = || setup(format!("no {name} to simulate"));
    let words: Vec<&str> = name.split('/').collect();
    let [contender, pattern, numbers @ ..] = words.as_slice() else { return Err(unknown()) };
    let numbers: Vec<u64> = numbers.iter().filter_map(|word| word.parse().ok()).collect();
    let &[frames, threads, order, calls] = numbers.as_slice() else { return Err(unknown()) };
    let (threads, calls) = (threads as usize, calls as usize);
    let plan = Plan { frames, threads, order: order as u8, calls };
    let all = Pattern::ALL;
    let pattern = all.into_iter().find(|known| known.name() == *pattern).ok_or_else(unknown)?;
    let failed = match *contender {
        Fifo::NAME => simulated::run::<Ours<Fifo, MarkedLock>>(pattern, plan, 1),
        Gather::NAME => simulated::run::<Ours<Gather, MarkedLock>>(pattern, plan, 1),
        Theirs::NAME => simulated::run::<Theirs>(pattern, plan, 1),
        _ => return Err(unknown()),
    };
    match failed {
        Ok(0) => Ok(()),
        Ok(failed) => Err(Failure::Result(format!("{failed} calls failed"))),
        Err(what) => Err(Failure::Result(what)),
    }
}

/// Prices every pattern for as many CPUs as threads are asked for, and says which rows are lost.
pub(crate) fn many(options: &Options) -> Result<(), Failure> {
    println!("Nanoseconds per call or pair in the model, and transfers of cache lines.\n");
    println!(
        "| pattern | CPUs | order | swath | LLFree | swath / LLFree | transfers, swath | LLFree |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let (mut rows, mut lost) = (0, Vec::new());
    for &pattern in &options.patterns {
        for plan in options.plans(CALLS) {
            // All of the memory is taken there, one block after the other.
            if pattern == Pattern::Aged && plan.order < 6 {
                continue;
            }
            let Plan { threads, order, .. } = plan;
            let ours = if options.gathers {
                price::<Ours<Gather, MarkedLock>>(pattern, plan)?
            } else {
                price::<Ours<Fifo, MarkedLock>>(pattern, plan)?
            };
            let costs = [ours, price::<Theirs>(pattern, plan)?];
            for (part, called) in pattern.parts().iter().enumerate() {
                let [ours, theirs] = costs.map(|parts| parts[part]);
                let per_call = |cost: Cost| {
                    let calls = cost.calls.max(1) as f64;
                    (cost.nanos / calls, cost.transfers as f64 / calls)
                };
                let ((ours, our_lines), (theirs, their_lines)) = (per_call(ours), per_call(theirs));
                let (name, ratio) = (format!("{} {called}", pattern.name()), ours / theirs);
                println!(
                    "| {name} | {threads} | {order} | {ours:.1} | {theirs:.1} | {ratio:.2} | {our_lines:.2} | {their_lines:.2} |"
                );
                rows += 1;
                if ratio > 1.0 {
                    lost.push(format!("{name}, {threads} CPUs, order {order}: {ratio:.2}"));
                }
            }
        }
    }
    println!("\n{} of {rows} rows are lost (above 1.00):", lost.len());
    lost.iter().for_each(|row| println!("- {row}"));
    println!();
    Ok(())
}
