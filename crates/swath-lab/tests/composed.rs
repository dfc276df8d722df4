//! Plans that compose: designs, the memory, TLBs that replace otherwise, anchors; and that say no more
//! than their studies need.

use std::collections::BTreeSet;

use crate::runs::{text, with_run};
use swath_lab::study::claim::Claim;
use swath_lab::study::registry;
use swath_lab::study::results::StudyResult;
use swath_lab::study::verdict::Verdict;
use toml::{Table, Value};

/// Puts one table into another, key by key.
fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// A built-in plan without some keys and with others, as text.
fn plan(study: &str, without: &[&str], with: &str) -> String {
    let mut plan: Table = toml::from_str(text(study)).unwrap();
    for key in without {
        let (at, key) = match key.rsplit_once('.') {
            Some((table, key)) => (plan[table].as_table_mut().unwrap(), key),
            None => (&mut plan, *key),
        };
        assert!(at.remove(key).is_some(), "{study} has no {key}");
    }
    merge(&mut plan, with.parse().unwrap());
    toml::to_string(&plan).unwrap()
}

fn run(text: &str) -> StudyResult {
    let study = registry::parse("composed", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    with_run(true, |run| study.run(run)).unwrap_or_else(|error| panic!("{error}\n{text}")).result
}

/// The designs that have points.
fn designs(result: &StudyResult) -> BTreeSet<&str> {
    let has_points = result.series.iter().filter(|series| !series.points.is_empty());
    has_points.map(|series| series.design.as_str()).collect()
}

/// The values of a design in a figure.
fn values(result: &StudyResult, figure: &str, design: &str) -> Vec<f64> {
    let is =
        |one: &&swath_lab::study::results::Series| one.figure == figure && one.design == design;
    let series = result.series.iter().find(is);
    let series = series.unwrap_or_else(|| panic!("no {design} in {figure}: {:?}", designs(result)));
    series.points.iter().map(|point| point.y).collect()
}

const FEW: &str = "repeats.quick = 2\naccesses.table4.workloads = [\"rotated-display\"]\n\
                   memory.blocks.block_frames = [4, 16]\n";

const SMALL: &str = "repeats.quick = 1\nworkloads = [\"matrix-transpose\"]\nblock_frames = [8]\n";

const LONG: [&str; 3] = ["variants", "fields", "category_i_block_frames"];

const COMPOSED: &str = r#"
[[designs]]
name = "PBS"
[[designs]]
name = "PBS with anchors"
frames = "pbs"
scheme = "at"
anchor_log2 = 2
walk_order = "anchor-first"
[[designs]]
name = "Best fit"
frames = "pbs-best-fit"
scheme = "pcad"
[[designs]]
name = "PCAD of 64"
frames = "bbs"
scheme = "pcad"
tlb_entries = 64
tlb_ways = 4
[[designs]]
name = "TRAD at random"
frames = "bbs"
scheme = "trad"
tlb_replacement = "random"
[[designs]]
name = "Large"
frames = "bbs"
scheme = "large"
"#;

const NAMES: [&str; 6] =
    ["PBS", "PBS with anchors", "Best fit", "PCAD of 64", "TRAD at random", "Large"];

/// The designs that a plan names are measured, and no others, in each study that compares designs.
#[test]
fn composed_designs_are_those_of_each_study() {
    let named = BTreeSet::from(NAMES);
    let hits = run(&plan("pbs-tlb", &[], &format!("best_fit = false\n{FEW}{COMPOSED}")));
    assert_eq!(designs(&hits), named);
    // What is the same in both runs is measured the same.
    let paper = run(&plan("pbs-tlb", &[], FEW));
    assert_eq!(values(&hits, "Fig. 12", "PBS"), values(&paper, "Fig. 12", "PBS"));
    let cycles = run(&plan("pbs-system", &LONG, &format!("{SMALL}{COMPOSED}")));
    assert_eq!(designs(&cycles), named);
    let keys = format!("repeats.quick = 1\nwidths = [4]\nformats = [\"sv39\"]\n{COMPOSED}");
    assert_eq!(designs(&run(&plan("pbs-widths", &[], &keys))), named);
    let keys = format!(
        "repeats.quick = 1\ncolumn_bytes = [128]\nblocks = [[64, 16]]\nblock_frames = [4]\n{COMPOSED}"
    );
    let readings = run(&plan("pbs-readings", &[], &keys));
    assert!(designs(&readings).is_superset(&named), "{:?}", designs(&readings));
    // Nothing is judged on designs that were not measured.
    let judged = |result: &StudyResult| {
        let not_measured = |claim: &Claim| claim.verdict() == Verdict::NotMeasured;
        !result.claims.iter().all(not_measured)
    };
    assert!(!judged(&hits) && !judged(&cycles));
}

/// A name that a plan composes can be what a study of its own has.
#[test]
fn a_composed_design_is_what_its_parts_are() {
    let again = r#"
[[designs]]
name = "PCAD"
[[designs]]
name = "PCAD again"
frames = "bbs"
scheme = "pcad"
tlb_entries = 32
[[designs]]
name = "PBS"
[[designs]]
name = "PBS again"
frames = "pbs"
scheme = "pcad"
[[designs]]
name = "AT"
[[designs]]
name = "AT again"
frames = "bbs"
scheme = "at"
tlb_replacement = "lru"
walk_order = "regular-first"
"#;
    let hits = run(&plan("pbs-tlb", &[], &format!("best_fit = false\n{FEW}{again}")));
    let cycles = run(&plan("pbs-system", &LONG, &format!("{SMALL}{again}")));
    for name in ["PCAD", "PBS", "AT"] {
        for (result, figure) in [(&hits, "Fig. 12"), (&cycles, "Fig. 18")] {
            let again = format!("{name} again");
            assert_eq!(values(result, figure, name), values(result, figure, &again), "{name}");
        }
    }
}

#[test]
fn replacement_order_and_anchors_of_the_machine_change_what_they_should() {
    // The rotated display takes its pages in turn, which is the same to LRU and FIFO.
    let few = FEW.replace("rotated-display", "matrix-multiplication");
    let tlb = |machine: &str| run(&plan("pbs-tlb", &[], &format!("{few}{machine}")));
    let lru = tlb("");
    let fifo = tlb("machine.tlb_replacement = \"fifo\"");
    let random = tlb("machine.tlb_replacement = \"random\"");
    let of = |result: &StudyResult, design: &str| values(result, "Fig. 13", design);
    assert_ne!(of(&lru, "PCAD"), of(&fifo, "PCAD"));
    assert_ne!(of(&random, "PCAD"), of(&fifo, "PCAD"));
    assert!(fifo.claims.iter().all(|claim| claim.reason().contains("TLB replacement")));
    // Anchors change AT alone, their order the reads that it takes and not the hits.
    let near = tlb("machine.anchor_log2 = 1");
    let far = tlb("machine.anchor_log2 = 9");
    assert_ne!(of(&near, "AT"), of(&far, "AT"));
    assert_eq!(of(&near, "PBS"), of(&lru, "PBS"));
    let first = tlb("machine.walk_order = \"anchor-first\"");
    assert_eq!(of(&first, "AT"), of(&lru, "AT"));
    // Where pages that are no anchors miss, an anchor that covers them saves the second walk.
    let turned = |machine: &str| run(&plan("pbs-tlb", &[], &format!("{FEW}{machine}")));
    let (both, first) = (turned(""), turned("machine.walk_order = \"anchor-first\""));
    let reads = |result: &StudyResult, design| values(result, "Page-table reads", design);
    assert!(reads(&first, "AT") < reads(&both, "AT"), "{:?}", reads(&first, "AT"));
    assert_eq!(reads(&first, "PBS"), reads(&both, "PBS"));
    let system = |keys: &str| run(&plan("pbs-system", &LONG, &format!("{SMALL}{keys}")));
    let cycles = |result: &StudyResult, design| values(result, "Fig. 18", design);
    let (by_machine, by_system) =
        (system("machine.anchor_log2 = 9"), system("system.anchor_log2 = 9"));
    assert_eq!(cycles(&by_machine, "AT"), cycles(&by_system, "AT"));
    assert_ne!(cycles(&by_machine, "AT"), cycles(&system(""), "AT"));
    let first = system("machine.walk_order = \"anchor-first\"\nmachine.tlb_replacement = \"fifo\"");
    assert_ne!(cycles(&first, "AT"), cycles(&system(""), "AT"));
}

/// A plan that leaves out what is as in Table 3 gives what the whole plan does.
#[test]
fn what_a_plan_need_not_say_is_as_in_the_paper() {
    let machine = [
        "machine.tlb_entries",
        "machine.tlb_ways",
        "machine.contiguity_bits",
        "machine.bbs_max_order",
        "machine.pbs_granularity",
        "machine.pbs_top_order",
    ];
    let hits = |without: &[&str]| run(&plan("pbs-tlb", without, FEW));
    let (whole, short) = (hits(&[]), hits(&machine));
    assert_eq!((&whole.series, &whole.claims), (&short.series, &short.claims));
    let without: Vec<&str> = machine.iter().chain(&LONG).copied().chain(["system"]).collect();
    let whole = run(&plan("pbs-system", &LONG, SMALL));
    let short = run(&plan("pbs-system", &without, SMALL));
    assert_eq!((&whole.series, &whole.claims), (&short.series, &short.claims));
    // PBS follows the format.
    let armv8 = "machine.format = \"armv8\"\n";
    let short = run(&plan("pbs-tlb", &machine, &format!("{FEW}{armv8}")));
    let orders = "machine.pbs_granularity = 9\nmachine.pbs_top_order = 18\n";
    let whole = run(&plan("pbs-tlb", &[], &format!("{FEW}{armv8}{orders}")));
    assert_eq!(whole.series, short.series);
}

#[test]
fn a_plan_chooses_its_memory() {
    let system = |dram: &str| run(&plan("pbs-system", &LONG, &format!("{SMALL}{dram}")));
    let cycles = |result: &StudyResult| values(result, "Fig. 18", "TRAD")[0];
    let has_energy =
        |result: &StudyResult| result.figures.iter().any(|figure| figure.id == "Energy");
    let paper = system("");
    assert!(has_energy(&paper));
    for (part, mhz) in [("ddr4-3200", "1600 MHz"), ("lpddr5-6400", "800 MHz")] {
        let other = system(&format!("dram.part = {part:?}\ndram.channels = 2"));
        assert!(other.finding.contains(mhz), "{}", other.finding);
        assert_ne!(cycles(&other), cycles(&paper));
        assert_eq!(has_energy(&other), part == "ddr4-3200");
        assert!(other.claims.iter().all(|claim| claim.reason().contains("memory")));
    }
    let one = system("dram.channels = 1");
    assert!(cycles(&one) > cycles(&paper));
    let unified = system("dram.write_entries = 0\ndram.queue_entries = 4");
    assert!(cycles(&unified) != cycles(&paper));
    let by_sets =
        system("dram.part = \"ddr5-4800\"\ndram.channels = 2\ndram.refresh = \"same-bank\"");
    let by_ranks = system("dram.part = \"ddr5-4800\"\ndram.channels = 2");
    assert_ne!(cycles(&by_sets), cycles(&by_ranks));
}

/// Each refusal names key and line.
#[test]
fn what_cannot_be_composed_is_refused_with_key_and_line() {
    let designs = |inside: &str| format!("[[designs]]\nname = \"Mine\"\n{inside}\n");
    let whole = "frames = \"bbs\"\nscheme = \"at\"\n";
    let pcad = "frames = \"bbs\"\nscheme = \"pcad\"\n";
    let with = |keys: &str| designs(&format!("{whole}{keys}"));
    for (added, key, why) in [
        (designs(""), "designs.0.name", "no design \"Mine\"; there are TRAD, PCAD, AT, PBS"),
        (designs("frames = \"bbs\""), "designs.0.scheme", "a composed design says it"),
        (designs("scheme = \"at\""), "designs.0.frames", "a composed design says it"),
        (
            designs("frames = \"slab\"\nscheme = \"at\""),
            "designs.0.frames",
            "there are \"bbs\", \"pbs\"",
        ),
        (designs("frames = \"bbs\"\nscheme = \"anchor\""), "designs.0.scheme", "unknown variant"),
        (designs("frames = 3\nscheme = \"at\""), "designs.0.frames", "invalid type"),
        (with("tlb = \"CoLT\""), "designs.0.tlb", "no other crate has added one"),
        (with("tlb_entries = 12\ntlb_ways = 4"), "designs.0.tlb_ways", "sets of 4 ways"),
        (with("tlb_entries = 0"), "designs.0.tlb_entries", "0 is not between 1 and 65536"),
        (with("tlb_ways = 4"), "designs.0.tlb_ways", "only beside tlb_entries"),
        (with("tlb_replacement = \"plru\""), "designs.0.tlb_replacement", "unknown variant"),
        (with("anchor_log2 = 17"), "designs.0.anchor_log2", "17 is not between 1 and 16"),
        (with("anchor_log2 = -1"), "designs.0.anchor_log2", "-1 is not between 1 and 16"),
        (with("colour = 1"), "designs.0.colour", "unknown field"),
        (with("\"col.our\" = 1"), "designs.0.\"col.our\"", "unknown field"),
        (
            designs(&format!("{pcad}walk_order = \"anchor-first\"")),
            "designs.0.walk_order",
            "has anchors",
        ),
        (designs(&format!("{pcad}anchor_log2 = 3")), "designs.0.anchor_log2", "has anchors"),
        (with("").replace("Mine", "Mine, too"), "designs.0.name", "no comma"),
        (with("").replace("Mine", "TRAD 2"), "designs.0.name", "no contiguity"),
        (with("").replace("Mine", "PBS"), "designs.0.name", "is composed already"),
        (with("").replace("Mine", ""), "designs.0.name", "is no name of 1 to 48"),
        (with("").replace("Mine", &"x".repeat(49)), "designs.0.name", "is no name of 1 to 48"),
        (with("").replace("Mine", "a\\nb"), "designs.0.name", "is no name of 1 to 48"),
        (format!("{}{}", with(""), with("tlb_entries = 8")), "designs.1.name", "stands twice"),
        (format!("{}{}", with(""), with("")), "designs.1.name", "stands twice"),
        ("designs = []".into(), "designs", "none given"),
        ("designs = 7".into(), "designs", "invalid type"),
        (
            "[machine]\ntlb_replacement = \"mru\"".into(),
            "machine.tlb_replacement",
            "unknown variant",
        ),
        ("[machine]\nwalk_order = 1".into(), "machine.walk_order", ""),
        ("[machine]\nanchor_log2 = 0".into(), "machine.anchor_log2", "0 is not between 1 and 16"),
        (
            "[machine]\nanchor_log2 = 3\n[system]\nanchor_log2 = 3".into(),
            "system.anchor_log2",
            "machine.anchor_log2 is given",
        ),
        ("[dram]\npart = \"ddr2\"".into(), "dram.part", "there are ddr3-800, ddr3-1600"),
        ("[dram]\npart = \"/nowhere/part.toml\"".into(), "dram.part", "/nowhere/part.toml"),
        ("[dram]\npart = 3".into(), "dram.part", "invalid type"),
        ("[dram]\nchannels = 3".into(), "dram.channels", "3 is not a power of two"),
        ("[dram]\nchannels = 128".into(), "dram.channels", "128 is not between 1 and 64"),
        ("[dram]\nranks = 32".into(), "dram.ranks", "64 banks on a channel"),
        ("[dram]\nranks = 5".into(), "dram.ranks", "5 is not a power of two"),
        ("[dram]\nrefresh = \"same-bank\"".into(), "dram.refresh", "cannot be refreshed by sets"),
        ("[dram]\nrefresh = \"never\"".into(), "dram.refresh", "unknown variant"),
        ("[dram]\ninterleave_bytes = 96".into(), "dram.interleave_bytes", "power of two from 64"),
        ("[dram]\nwrite_high = 3\nwrite_low = 3".into(), "dram.write_high", "a drain from 3 to 3"),
    ] {
        let text = plan("pbs-system", &LONG, &added);
        let error = registry::parse("mine.toml", &text).err();
        let error = error.unwrap_or_else(|| panic!("{added} is read")).to_string();
        let named = error.split_once(": ").map_or("", |(_, rest)| rest);
        assert!(named.starts_with("line "), "{added}: {error}");
        assert!(named.contains(&format!(", {key}: ")), "{added}: {key} is not named: {error}");
        assert!(error.contains(why), "{added}: {error} lacks {why:?}");
    }
}

const ALLOCATORS: &str = r#"
[[designs]]
name = "BBS"
[[designs]]
name = "PBS"
[[designs]]
name = "BBS of 9"
frames = "bbs"
max_order = 9
[[designs]]
name = "BBS of 11"
frames = "bbs"
max_order = 11
[[designs]]
name = "PBS again"
frames = "pbs"
[[designs]]
name = "PBS short"
frames = "pbs"
granularity = 2
top_order = 4
[[designs]]
name = "Best fit"
frames = "pbs-best-fit"
"#;

/// A study of allocators alone measures those that its plan names, and no others.
#[test]
fn composed_allocators_are_those_of_the_studies_of_allocators() {
    let keys = format!("repeats.quick = 2\nblock_frames = [1, 16, 256]\n{ALLOCATORS}");
    let nodes = run(&plan("pbs-freelist", &["aged", "varied"], &keys));
    let of = |design| values(&nodes, "Fig. 21", design);
    assert_eq!(of("BBS"), of("BBS of 9"));
    assert_eq!(of("PBS"), of("PBS again"));
    assert!(of("BBS of 11")[2] <= of("BBS")[2] && of("PBS short") > of("PBS"));
    let in_figure = |one: &&swath_lab::study::results::Series| one.figure == "Fig. 21";
    assert_eq!(nodes.series.iter().filter(in_figure).count(), 7);
    // Of best fit the paper's lists say nothing.
    let lists = nodes.series.iter().filter(|one| one.figure == "Lists for a page");
    let lists: BTreeSet<&str> =
        lists.filter(|one| !one.points.is_empty()).map(|one| one.design.as_str()).collect();
    assert!(lists.contains("PBS short") && !lists.contains("Best fit"), "{lists:?}");
    // Without BBS the paper's statements are not judged.
    let alone = "repeats.quick = 2\n[[designs]]\nname = \"PBS\"\n";
    let alone = run(&plan("pbs-freelist", &["aged", "varied"], alone));
    assert_eq!(designs(&alone), BTreeSet::from(["PBS", "PBS, two integers in a node"]));
    assert!(alone.claims.iter().all(|claim| claim.verdict() == Verdict::NotMeasured));
    assert!(registry::parse("mine.toml", &plan("pbs-allocation", &[], ALLOCATORS)).is_ok());
}

#[test]
fn allocators_that_cannot_be_are_refused_with_key_and_line() {
    let one = |keys: &str| format!("[[designs]]\nname = \"Mine\"\n{keys}\n");
    for (added, key, why) in [
        (one(""), "designs.0.name", "there are BBS, PBS, PBS, granularity 9, and what frames"),
        (one("max_order = 3"), "designs.0.frames", "a composed design says it"),
        (one("frames = \"slab\""), "designs.0.frames", "there are \"bbs\", \"pbs\""),
        (one("frames = \"pbs\"\nmax_order = 3"), "designs.0.max_order", "\"pbs\" has none"),
        (one("frames = \"bbs\"\ntop_order = 3"), "designs.0.top_order", "\"bbs\" has none"),
        (one("frames = \"bbs\"\nmax_order = 65"), "designs.0.max_order", "between 1 and 64"),
        (one("frames = \"bbs\"\nscheme = \"at\""), "designs.0.scheme", "unknown field"),
        (one("frames = \"bbs\"").replace("Mine", "PBS"), "designs.0.name", "there already"),
        (one("frames = \"bbs\"").replace("Mine", "a, b"), "designs.0.name", "nor a comma"),
        (
            format!("{}{}", one("frames = \"bbs\""), one("frames = \"bbs\"")),
            "designs.1.name",
            "twice",
        ),
        ("designs = []".into(), "designs", "none given"),
    ] {
        for study in ["pbs-freelist", "pbs-allocation"] {
            let error = registry::parse("mine.toml", &plan(study, &[], &added)).err();
            let error = error.unwrap_or_else(|| panic!("{added} is read")).to_string();
            assert!(error.contains("line "), "{added}: {error}");
            assert!(error.contains(&format!(", {key}: ")), "{added}: {key} is not named: {error}");
            assert!(error.contains(why), "{added}: {error} lacks {why:?}");
        }
    }
    let taken = one("frames = \"bbs\"").replace("Mine", "BBS with contiguity");
    let error = registry::parse("mine.toml", &plan("pbs-allocation", &[], &taken)).err();
    assert!(error.unwrap().to_string().contains("one of the study's own"));
}

/// A recorded program is a master of the timed system, alone and beside a workload's masters.
#[test]
fn recorded_programs_are_masters() {
    let mix = r#"
[[mixes]]
name = "Sort"
masters = [{ trace = { file = "", transactions_max = 4000 } }]
[[mixes]]
name = "Sort beside itself"
masters = [
    { trace = { file = "", transactions_max = 4000 } },
    { trace = { file = "", transactions_max = 4000 } },
]
[[mixes]]
name = "Sort beside a transpose"
masters = [{ trace = { file = "", transactions_max = 4000 } }, { workload = "matrix-transpose" }]
"#;
    let text = plan("pbs-system", &LONG, &format!("{SMALL}{mix}"));
    let found = run(&text);
    let cycles = |figure, design| values(&found, figure, design)[0];
    for design in ["TRAD", "PBS"] {
        let (alone, twice) = (cycles("Sort", design), cycles("Sort beside itself", design));
        let transpose = cycles("Fig. 18", design);
        let both = cycles("Sort beside a transpose", design);
        assert!(twice > alone && both > transpose && both < transpose + alone, "{design}");
    }
    assert!(cycles("Sort", "PBS") < cycles("Sort", "TRAD"));
    // The paper's workloads are what they were.
    let paper = run(&plan("pbs-system", &LONG, SMALL));
    assert_eq!(values(&found, "Fig. 18", "AT"), values(&paper, "Fig. 18", "AT"));
    assert_eq!(found.claims, paper.claims);
}

#[test]
fn masters_that_cannot_be_are_refused() {
    let one = |masters: &str| format!("[[mixes]]\nname = \"Mine\"\nmasters = {masters}\n");
    for (added, key, why) in [
        (one("[]"), "mixes.0.masters", "none given"),
        (one("[{ workload = \"sorting\" }]"), "mixes.0.masters", "unknown variant `sorting`"),
        (one("[{ trace = { transactions_max = 1 } }]"), "mixes.0.masters", "missing field `file`"),
        (one("[{ trace = { file = \"\", transactions_max = 0 } }]"), "mixes.0.masters", "0 is not"),
        (
            one("[{ workload = \"matrix-transpose\" }]").replace("Mine", "Matrix transpose"),
            "mixes.0.name",
            "there is a workload \"Matrix transpose\" already",
        ),
    ] {
        let error = registry::parse("mine.toml", &plan("pbs-system", &LONG, &added)).err();
        let error = error.unwrap_or_else(|| panic!("{added} is read")).to_string();
        assert!(error.contains("line ") && error.contains(key), "{added}: {key}: {error}");
        assert!(error.contains(why), "{added}: {error} lacks {why:?}");
    }
    // A file that is not there is named when it is read.
    let missing = one("[{ trace = { file = \"/nowhere/a.swtrace\" } }]");
    let study = plan("pbs-system", &LONG, &format!("{SMALL}{missing}"));
    let study = registry::parse("mine.toml", &study).unwrap();
    let error = with_run(true, |run| study.run(run)).err().unwrap().to_string();
    assert!(error.contains("/nowhere/a.swtrace"), "{error}");
}

/// A memory that is too small for what is asked of it is no panic and no wrong translation.
#[test]
fn a_memory_without_room_says_so() {
    let keys = format!("{SMALL}dram.channels = 1\nfree_share = 0.001");
    let study = registry::parse("composed", &plan("pbs-system", &LONG, &keys)).unwrap();
    let error = with_run(true, |run| study.run(run)).err().unwrap().to_string();
    assert!(error.contains("frames, ") && error.contains("free_per_requested"), "{error}");
}
