//! The talk's statements (section "Validation and benchmarking").

use crate::papers::superpages::found::{
    COMPILE, GCC, MODE, NO_COMPILER, OFF, ON, PLAN, READING, TLB, TalkFound, miss_cycles, speedup,
};
use crate::papers::superpages::plan::{LMBENCH, RANDOM_LATENCY};
use crate::study::claim::{Conditions, Statement};
use crate::study::verdict::Unit;

/// All statements. Tolerances: the talk gives LMbench's gains to a hundredth
/// per cent without repeats, and 2 points are allowed; world builds take whole
/// minutes of hours that other work shares, and 3 points are allowed; numbers
/// of misses are exact counts of a machine with other programs on it, 1 per
/// cent; cycles of a miss are means of one experiment, a quarter.
pub(crate) fn claims(conditions: &Conditions) -> Vec<Statement<TalkFound>> {
    let mut claims: Vec<Statement<TalkFound>> = LMBENCH
        .into_iter()
        .map(|(title, percent)| lmbench(title, percent).under(conditions))
        .collect();
    let minutes = |hours: f64, minutes: f64| hours * 60.0 + minutes;
    for (compiler, off, on) in [
        (GCC, minutes(6.0, 36.0), minutes(5.0, 14.0)),
        ("CLANG", minutes(6.0, 16.0), minutes(6.0, 15.0)),
    ] {
        let saved = 1.0 - on / off;
        let says = format!("World build by {compiler}: {:.1}% less time", 100.0 * saved);
        let statement = Statement::within("Benchmarking", &says, saved, 0.03)
            .unit(Unit::Share)
            .cause(COMPILER_CAUSE)
            .under(conditions);
        claims.push(statement.measured(move |found: &TalkFound| {
            found.exact.evidence(|view| Ok(1.0 - 1.0 / speedup(view, COMPILE, compiler, ON, PLAN)?))
        }));
    }
    let place = "Test results";
    let says = "32,882 TLB misses without superpages";
    let walks = |mode: &'static str| {
        move |found: &TalkFound| {
            found.misses.evidence(|view| {
                view.select().is(READING, PLAN).is(MODE, mode).is(TLB, PLAN).one("walks")
            })
        }
    };
    claims.push(
        Statement::about(place, says, 32_882.0, 0.01)
            .identity(
                "2 x 64 TLB entries x 256 base pages are 32,768 reads, each in another page and \
                 none to be found in the TLB",
            )
            .under(conditions)
            .measured(walks(OFF)),
    );
    let says = "193 TLB misses with superpages";
    let statement = Statement::about(place, says, 193.0, 0.01).cause(MISSES_CAUSE);
    claims.push(statement.under(conditions).measured(walks(ON)));
    for (mode, says, cycles) in [
        (OFF, "157 cycles for a TLB miss without superpages", 157.0),
        (ON, "60 cycles for a TLB miss with superpages", 60.0),
    ] {
        let statement = Statement::about(place, says, cycles, 0.25)
            .cause(CYCLES_CAUSE)
            .fitted("machine.walks_from = \"memory\": of the readings the one nearest to these two")
            .under(conditions);
        claims.push(statement.measured(move |found: &TalkFound| {
            found.misses.evidence(|view| miss_cycles(view, PLAN, mode))
        }));
    }
    claims
}

fn lmbench(title: &'static str, percent: f64) -> Statement<TalkFound> {
    let says = format!("LMbench, {title}: {percent}% faster with superpages");
    Statement::within("Benchmarking", &says, percent / 100.0, 0.02)
        .unit(Unit::Share)
        .cause(LMBENCH_CAUSE)
        .measured(move |found: &TalkFound| {
            found
                .of(title)
                .evidence(|view| Ok(gain(title, speedup(view, title, NO_COMPILER, ON, PLAN)?)))
        })
}

/// The gain in a benchmark's own terms: bandwidth that is more, latency that is less.
pub(crate) fn gain(title: &str, speedup: f64) -> f64 {
    if title == RANDOM_LATENCY { 1.0 - 1.0 / speedup } else { speedup - 1.0 }
}

const MISSES_CAUSE: &str = "2 x 64 sections are 128 misses; the talk's other 65 are the program's \
     own and the kernel's, which are not simulated.";
const COMPILER_CAUSE: &str = "One run of GCC's cc1 on a small file that is in memory, a sample of its accesses. A world \
     build has larger files, many processes and a disc.";
const LMBENCH_CAUSE: &str = "What a benchmark gains is the share of its time that it walks. Where walks read from memory, \
     as the talk's cost of a miss suggests, streams gain more than the talk says and random reads \
     much more; where they find the second cache, both gain less (series \"walks from L2\"). The \
     talk's processor lies between, prefetches, and does not say how its sizes were chosen.";
const CYCLES_CAUSE: &str = "Where walks read, and how much of a walk other loads hide, is not known of the talk's \
     processor: the figure shows the readings.";
