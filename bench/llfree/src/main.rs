//! Swath's front over its page buddy system beside LLFree, in one program.
//!
//! ```text
//! swath-bench-llfree [check | times | instructions | many | churn] [--threads 1,2] [--orders 0-10]
//!                    [--frames N] [--rounds N] [--patterns bulk,repeat,random,aged,cross]
//!                    [--reuse fifo|gather]
//! ```
//!
//! Without a word it does all three: it looks at what both hand out (each frame to one owner at a
//! time), times both in turn, and counts the instructions of a pair of calls. The package's README
//! says how, and what favours whom. `many` prices the calls of more CPUs than there are; `churn` counts the
//! huge pages that single frames leave free.

use std::process::ExitCode;

use swath_frame::front::{Fifo, Gather};

use crate::contender::{Contender, Shared};
use crate::failure::Failure;
use crate::options::Options;
use crate::ours::{Made, Ours};
use crate::owned::Owned;
use crate::patterns::{Pattern, Plan};
use crate::theirs::Theirs;

mod churn;
mod contender;
mod many;
mod options;
mod ours;
mod owned;
mod patterns;
mod rounds;
mod simulated;
mod theirs;
mod threads;

// What the other benchmarks use: counting, the lock, the median, random numbers.
#[path = "../../src/callgrind.rs"]
mod callgrind;
#[path = "../../src/frames/churned.rs"]
mod churned;
#[allow(dead_code, reason = "this program starts no other than valgrind")]
#[path = "../../src/failure.rs"]
mod failure;
#[allow(dead_code, reason = "the memory has a length of its own here")]
#[path = "../../src/random.rs"]
mod random;
#[allow(dead_code, reason = "the memory has a length of its own here")]
#[path = "../../src/setup.rs"]
mod setup;

/// Pairs whose instructions are counted.
const COUNTED: usize = 1 << 13;

fn main() -> ExitCode {
    // Other threads would wait for one that has panicked.
    std::panic::set_hook(Box::new(|info| {
        eprintln!("swath-bench-llfree: {info}");
        std::process::exit(1);
    }));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["measure", name] => measure(name),
        ["simulate", name] => many::simulate(name),
        ["check", options @ ..] => Options::parse(options).and_then(|options| check(&options)),
        ["times", options @ ..] => {
            Options::parse(options).and_then(|options| rounds::times(&options))
        }
        ["instructions", options @ ..] => {
            Options::parse(options).and_then(|options| instructions(&options))
        }
        ["churn", options @ ..] => Options::parse(options).and_then(|options| churn::run(&options)),
        ["many", options @ ..] => Options::parse(options).and_then(|options| many::many(&options)),
        options => Options::parse(options).and_then(|options| {
            check(&options)?;
            rounds::times(&options)?;
            instructions(&options)
        }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Result(what)) => {
            eprintln!("swath-bench-llfree: {what}");
            ExitCode::from(1)
        }
        Err(Failure::Setup(what)) => {
            eprintln!("swath-bench-llfree: {what}");
            ExitCode::from(2)
        }
    }
}

/// Runs every pattern on both, untimed, and looks at each block.
fn check(options: &Options) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    for plan in options.plans(1 << 14) {
        for &pattern in &options.patterns {
            for (name, outcome) in [
                (Fifo::NAME, look::<Ours<Fifo>>(pattern, plan)),
                (Gather::NAME, look::<Ours<Gather>>(pattern, plan)),
                (Theirs::NAME, look::<Theirs>(pattern, plan)),
            ] {
                let Plan { order, threads, .. } = plan;
                let said = match outcome {
                    Ok(0) => continue,
                    Ok(failed) => format!("{failed} calls failed"),
                    Err(what) => what,
                };
                wrong.push(format!(
                    "{name}, {}, order {order}, {threads} threads: {said}",
                    pattern.name()
                ));
            }
        }
    }
    if wrong.is_empty() {
        println!("ownership: every frame had one owner at a time, in both allocators\n");
        return Ok(());
    }
    Err(Failure::Result(wrong.join("\n")))
}

fn look<C: Contender>(pattern: Pattern, plan: Plan) -> Result<u64, String> {
    C::with(plan.frames, plan.cpus(), |shared| {
        let owned = Owned::new(shared, plan.frames);
        let tally = pattern.run(&owned, plan);
        owned.fault()?;
        Ok(tally?.failed)
    })
}

/// Counts the instructions of a pair of calls for each order.
fn instructions(options: &Options) -> Result<(), Failure> {
    println!("| order | instructions of a pair, swath | LLFree | swath / LLFree |");
    println!("|---|---|---|---|");
    for &order in &options.orders {
        let count = |name: &str| -> Result<f64, Failure> {
            let (pairs, instructions) = callgrind::run(&format!("{name}/{order}"))?;
            Ok(instructions as f64 / pairs as f64)
        };
        let name = if options.gathers { Gather::NAME } else { Fifo::NAME };
        let (ours, theirs) = (count(name)?, count(Theirs::NAME)?);
        println!("| {order} | {ours:.1} | {theirs:.1} | {:.2} |", ours / theirs);
    }
    Ok(())
}

/// Runs the pairs that are counted, under callgrind.
fn measure(name: &str) -> Result<(), Failure> {
    let unknown = || Failure::Setup(format!("no {name} to measure"));
    let (contender, order) = name.split_once('/').ok_or_else(unknown)?;
    let order = order.parse().map_err(|_| unknown())?;
    let failed = match contender {
        Fifo::NAME => counted::<Ours<Fifo>>(order),
        Gather::NAME => counted::<Ours<Gather>>(order),
        Theirs::NAME => counted::<Theirs>(order),
        _ => return Err(unknown()),
    };
    match failed {
        Ok(0) => {
            println!("calls {COUNTED}");
            Ok(())
        }
        Ok(failed) => Err(Failure::Result(format!("{failed} calls failed"))),
        Err(what) => Err(Failure::Result(what)),
    }
}

fn counted<C: Contender>(order: u8) -> Result<u64, String> {
    C::with(setup::FRAMES, 2, |shared| {
        let mut cpu = shared.on(0, order)?;
        let mut failed = patterns::pairs(&mut cpu, COUNTED);
        callgrind::count(&mut || failed += patterns::pairs(&mut cpu, COUNTED));
        shared.check(setup::FRAMES)?;
        Ok(failed)
    })
}
