//! The talk's statements (section "Validation and benchmarking").

use crate::papers::superpages::found::{
    BUILD, CLANG, GCC, MODE, NO_COMPILER, OFF, ON, PLAN, READING, TLB, TalkFound, miss_cycles,
    speedup,
};
use crate::papers::superpages::plan::{BCOPY_HAND, BCOPY_LIBC, LMBENCH, RANDOM_LATENCY};
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
        (CLANG, minutes(6.0, 16.0), minutes(6.0, 15.0)),
    ] {
        let saved = 1.0 - on / off;
        let says = format!("World build by {compiler}: {:.1}% less time", 100.0 * saved);
        let statement = Statement::within("Benchmarking", &says, saved, 0.03)
            .unit(Unit::Share)
            .cause(COMPILER_CAUSE)
            .fitted("recorded_cycles: 1, of 0 to 3 (figure \"Work\")")
            .under(conditions);
        claims.push(statement.measured(move |found: &TalkFound| {
            found.exact.evidence(|view| Ok(1.0 - 1.0 / speedup(view, BUILD, compiler, ON, PLAN)?))
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
    let statement = Statement::about(place, says, 193.0, 0.01)
        .cause(MISSES_CAUSE)
        .fitted("machine.tick_pages: 22, of the talk's 114 further misses without superpages");
    claims.push(statement.under(conditions).measured(walks(ON)));
    for (mode, says, cycles) in [
        (OFF, "157 cycles for a TLB miss without superpages", 157.0),
        (ON, "60 cycles for a TLB miss with superpages", 60.0),
    ] {
        let statement =
            Statement::about(place, says, cycles, 0.25).cause(CYCLES_CAUSE).under(conditions);
        claims.push(statement.measured(move |found: &TalkFound| {
            found.misses.evidence(|view| miss_cycles(view, PLAN, mode))
        }));
    }
    claims
}

fn lmbench(title: &'static str, percent: f64) -> Statement<TalkFound> {
    let says = format!("LMbench, {title}: {percent}% faster with superpages");
    let statement =
        Statement::within("Benchmarking", &says, percent / 100.0, 0.02).unit(Unit::Share);
    let statement = match title {
        RANDOM_LATENCY => statement.cause(RANDOM_CAUSE),
        BCOPY_LIBC | BCOPY_HAND => statement.cause(COPY_CAUSE),
        _ => statement.cause(STREAM_CAUSE),
    };
    statement.measured(move |found: &TalkFound| {
        found
            .of(title)
            .evidence(|view| Ok(gain(title, speedup(view, title, NO_COMPILER, ON, PLAN)?)))
    })
}

/// The gain in a benchmark's own terms: bandwidth that is more, latency that is less.
pub(crate) fn gain(title: &str, speedup: f64) -> f64 {
    if title == RANDOM_LATENCY { 1.0 - 1.0 / speedup } else { speedup - 1.0 }
}

const MISSES_CAUSE: &str = "2 x 64 sections are 128 misses. The pages of a tick that give the talk's 114 others without \
     superpages give fewer than its 65 with them, since the loop is shorter then: the rest are the \
     program's own, which the talk does not show.";
const COMPILER_CAUSE: &str = "Without superpages both compilers walk for a quarter of their time, and with superpages still for a twelfth \
     (figure \"Walking\"): their heaps leave sections in part, and with pages of 64 KiB beside them, which the talk's system \
     lacks, they take a quarter and a fifth less (figure \"Time\", \"build\"). They gain alike where their files align, and next \
     to nothing where files lie a page off (\"build, shifted\", of the full form), as the talk's Clang; and alike \
     whatever work goes on beside their accesses (figure \"Work\"). The talk's two differ so much that what they were linked \
     to must have; it does not say how.";
const STREAM_CAUSE: &str = "What a stream gains is the share of its time that it walks, a walk for each page; where walks \
     find the second cache, it gains less (series \"walks from L2\").";
const COPY_CAUSE: &str = "Source and destination lie a multiple of a superpage apart here, as large blocks of FreeBSD's malloc do, so \
     that a line and its copy are always in one bank of the memory, with superpages and without, and each closes the other's row \
     (figures \"Copies\" and \"Row conflicts\"). Where the talk's buffers lay is not known.";
const RANDOM_CAUSE: &str = "LMbench's ring takes 7 tenths of memory, of which the TLB reaches 64 MiB with superpages: there, \
     too, nearly each read walks. By the talk's own cycles of a miss the gain is (157 - 60) / (157 + r), \
     its 37.85% with r = 99 cycles for the read itself. Here the two misses lie closer together \
     (figure \"TLB miss\").";
const CYCLES_CAUSE: &str =
    "The figure shows other readings of where walks read, and of how much of one other loads hide.";
