//! Studies on superpages and on constant bounds with plans that a reader cuts down.

use crate::runs::{text, with_run};
use swath_lab::study::claim::Claim;
use swath_lab::study::registry::parse;
use swath_lab::study::run::Outcome;
use swath_lab::study::verdict::Verdict;

fn run(text: &str) -> Outcome {
    let study = parse("test", text).unwrap_or_else(|error| panic!("{error}"));
    with_run(true, |run| study.run(run)).unwrap()
}

fn claim<'o>(outcome: &'o Outcome, says: &str) -> &'o Claim {
    outcome.result.claims.iter().find(|claim| claim.says().contains(says)).unwrap()
}

/// The talk's study on a small machine.
fn talk() -> String {
    let text = text("superpages");
    let cut = text
        .replace("memory_mib = 2000", "memory_mib = 512")
        .replace("heap_kib = 4096", "heap_kib = 64")
        .replace("written_pages = 256", "written_pages = 4")
        .replace(
            "table_mib = 64, updates = { full = 2_000_000, quick = 250_000 }",
            "table_mib = 1, updates = 1000",
        )
        .replace(
            "mib = { full = 1400, quick = 512 }, reads = { full = 1_000_000, quick = 125_000 }",
            "mib = 1, reads = 1000",
        )
        .replace("table_mib = 16\nupdates = 100_000", "table_mib = 1\nupdates = 1000")
        .replace("quick = [1, 16, 64, 256, 512, 2048]", "quick = [1]")
        .replace("quick = 3 }\nloop", "quick = 2 }\nloop")
        .replace("quick = 2 } }", "quick = 1 } }");
    assert!(cut.contains("memory_mib = 512") && cut.contains("quick = [1]"));
    assert!(!cut.contains("1400"));
    cut
}

#[test]
fn what_is_left_out_is_not_measured_and_a_product_is_an_identity() {
    let outcome =
        run(&talk().replace("[[benchmarks]]\nmem-read = { mib = { full = 16, quick = 1 } }\n", ""));
    for compiler in ["GCC", "CLANG"] {
        let says = format!("World build by {compiler}");
        assert!(claim(&outcome, &says).measured().is_some());
    }
    assert_eq!(claim(&outcome, "32,882").verdict(), Verdict::Identity);
    let left_out = claim(&outcome, "mem read");
    assert_eq!(left_out.verdict(), Verdict::NotMeasured);
    assert_eq!(left_out.reason(), "axis program: no mem read");
    // Random programs have an interval over the seeds, the others are exact.
    assert_eq!(claim(&outcome, "rand mem latency").n(), 2);
    assert_eq!(outcome.result.claims.len(), 12);
}

#[test]
fn another_processor_is_not_comparable() {
    let outcome = run(&talk().replace("memory_mib = 512", "memory_mib = 512\ntlb_entries = 32"));
    assert!(outcome.result.claims.iter().all(|claim| claim.verdict() == Verdict::NotComparable));
}

#[test]
fn programs_that_are_left_out_are_not_measured() {
    let text = text("rt-programs").replace("actions = 1_000_000", "actions = 1000").replace(
        "[\"transcode\", \"mc\", \"minisat\", \"picosat\", \"fft\", \"neural\"]",
        "[\"transcode\"]",
    );
    let outcome = run(&text);
    let claims = &outcome.result.claims;
    assert_eq!(claims.len(), 12);
    for claim in claims {
        let says = claim.says();
        let is_measured = says.contains("transcode");
        assert_eq!(claim.measured().is_some(), is_measured, "{says}");
        let left_out = claim.verdict() == Verdict::NotMeasured;
        assert_eq!(left_out, !is_measured, "{says}: {}", claim.reason());
    }
}

#[test]
fn another_size_of_the_space_is_not_comparable() {
    let text = text("rt-footprint")
        .replace("actions = 1_000_000", "actions = 2000")
        .replace("quick = 5 }", "quick = 2 }")
        .replace("pool_pages = 1_048_576", "pool_pages = 131_072");
    let outcome = run(&text);
    assert!(outcome.result.claims.iter().all(|claim| {
        claim.verdict() == Verdict::NotComparable && claim.n() == 2 && !claim.fitted().is_empty()
    }));
}

/// With seed 1,000,000 the full form ended with "no frame is free": memory was a quarter of the
/// space. With a frame for each page addresses end first, which a run counts.
#[test]
fn memory_lasts_as_long_as_addresses() {
    let text = text("rt-footprint")
        .replace("actions = 1_000_000", "actions = 20_000")
        .replace("quick = 5 }", "quick = 2 }")
        .replace("pool_pages = 1_048_576", "pool_pages = 1024")
        .replace("frames = 1_048_576", "frames = 1024");
    run(&text);
    let less = text.replace("frames = 1024", "frames = 1023");
    let error = parse("test", &less).err().expect("memory ends first").to_string();
    assert!(error.contains("size.frames: 1023 are fewer"), "{error}");
}
