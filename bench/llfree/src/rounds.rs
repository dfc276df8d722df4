//! Times of both allocators, which take turns.

use swath_frame::front::{Fifo, Gather};

use crate::contender::Contender;
use crate::failure::Failure;
use crate::options::Options;
use crate::ours::{Made, Ours};
use crate::patterns::{Pattern, Plan, Tally};
use crate::setup::median;
use crate::theirs::Theirs;

/// Calls of each thread in a round, at least.
const CALLS: usize = 1 << 17;

/// Times that a round is tried while its threads have to wait for processors.
const TRIES: usize = 20;

/// Measures every pattern, and says which rows are lost.
pub(crate) fn times(options: &Options) -> Result<(), Failure> {
    if options.gathers { times_of::<Gather>(options) } else { times_of::<Fifo>(options) }
}

fn times_of<U: Made>(options: &Options) -> Result<(), Failure> {
    println!(
        "Nanoseconds per call, or per pair of calls: median of {} rounds (lowest–highest).\n",
        options.rounds
    );
    println!("| pattern | threads | order | {} | LLFree | ratio |", U::NAME);
    println!("|---|---|---|---|---|---|");
    let (mut rows, mut disturbed) = (0, 0);
    let (mut lost, mut failed) = (Vec::new(), Vec::new());
    for &pattern in &options.patterns {
        for plan in options.plans(CALLS) {
            let Plan { threads, order, .. } = plan;
            let tallies = (0..options.rounds)
                .map(|_| Ok([round::<Ours<U>>(pattern, plan)?, round::<Theirs>(pattern, plan)?]))
                .collect::<Result<Vec<_>, Failure>>()?;
            for (part, called) in pattern.parts().iter().enumerate() {
                let row = Row::new(&tallies, part);
                let name = format!("{} {called}", pattern.name());
                println!("| {name} | {threads} | {order} | {row} |");
                rows += 1;
                if row.ratio > 1.0 {
                    lost.push(format!(
                        "{name}, {threads} threads, order {order}: {:.2}",
                        row.ratio
                    ));
                }
            }
            disturbed += tallies.iter().flatten().filter(|tally| tally.disturbed).count();
            for (name, of) in [(U::NAME, 0), (Theirs::NAME, 1)] {
                let sum: u64 = tallies.iter().map(|tallies| tallies[of].failed).sum();
                if sum > 0 {
                    failed.push(format!(
                        "{name}, {}, {threads} threads, order {order}: {sum} calls",
                        pattern.name()
                    ));
                }
            }
        }
    }
    if disturbed > 0 {
        println!(
            "\n{disturbed} rounds count although a thread had to wait for a processor in all {TRIES} tries."
        );
    }
    println!("\n{} of {rows} rows are lost (above 1.00):", lost.len());
    lost.iter().for_each(|row| println!("- {row}"));
    if !failed.is_empty() {
        println!("\nCalls failed in:");
        failed.iter().for_each(|row| println!("- {row}"));
    }
    println!();
    Ok(())
}

fn round<C: Contender>(pattern: Pattern, plan: Plan) -> Result<Tally, Failure> {
    let once = || {
        C::with(plan.frames, plan.cpus(), |shared| pattern.run(shared, plan)).map_err(|what| {
            let Plan { order, threads, .. } = plan;
            let (name, pattern) = (C::NAME, pattern.name());
            Failure::Result(format!("{name}, {pattern}, order {order}, {threads} threads: {what}"))
        })
    };
    let mut tally = once()?;
    for _ in 1..TRIES {
        if !tally.disturbed {
            break;
        }
        tally = once()?;
    }
    Ok(tally)
}

/// One line of the table.
struct Row {
    cells: [String; 2],
    /// Ours by theirs, of the medians.
    ratio: f64,
    /// The lowest and the highest of the rounds.
    range: (f64, f64),
}

impl Row {
    fn new(tallies: &[[Tally; 2]], part: usize) -> Self {
        let of = |at: usize| -> Vec<f64> {
            tallies.iter().map(|tallies| tallies[at].per_call(part)).collect()
        };
        let (mut ours, mut theirs) = (of(0), of(1));
        let mut ratios: Vec<f64> =
            ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        let medians = [median(&mut ours), median(&mut theirs)];
        median(&mut ratios);
        let range = |sorted: &[f64]| (sorted[0], sorted[sorted.len() - 1]);
        let cell =
            |median: f64, (low, high): (f64, f64)| format!("{median:.1} ({low:.1}–{high:.1})");
        Self {
            cells: [cell(medians[0], range(&ours)), cell(medians[1], range(&theirs))],
            ratio: medians[0] / medians[1],
            range: range(&ratios),
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ([ours, theirs], ratio, (low, high)) = (&self.cells, self.ratio, self.range);
        write!(f, "{ours} | {theirs} | {ratio:.2} ({low:.2}–{high:.2})")
    }
}
