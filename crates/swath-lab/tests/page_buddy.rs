//! The studies of the page buddy system under plans that a reader cuts down:
//! nothing is judged on a part of what the paper states, or on another machine.

use std::collections::BTreeMap;

use crate::runs::{text, with_run};
use swath_lab::papers::page_buddy::allocation::{
    Allocation, AllocationPlan, Counting, claims_counted,
};
use swath_lab::papers::page_buddy::costs::Costs;
use swath_lab::papers::page_buddy::savings::{
    AS_MEASURED, CATEGORY, DESIGN, LEVEL, READING, WORKLOAD,
};
use swath_lab::papers::page_buddy::system::{System, SystemPlan};
use swath_lab::papers::page_buddy::workload::{Category, WorkloadName};
use swath_lab::study::claim::Claim;
use swath_lab::study::grid::{Grid, metrics};
use swath_lab::study::kind::{ReadyStudy, Study};
use swath_lab::study::registry;
use swath_lab::study::results::{Series, StudyResult};
use swath_lab::study::tally::Tally;
use swath_lab::study::verdict::Verdict;
use toml::{Table, Value};

/// A built-in plan, edited.
fn edited(study: &str, edit: impl FnOnce(&mut Table)) -> Box<dyn ReadyStudy> {
    let mut plan: Table = toml::from_str(text(study)).unwrap();
    edit(&mut plan);
    registry::parse("edited", &toml::to_string(&plan).unwrap()).unwrap()
}

fn numbers(values: &[i64]) -> Value {
    values.to_vec().into()
}

fn words(values: &[&str]) -> Value {
    values.to_vec().into()
}

/// Sets a value in nested tables.
fn set(plan: &mut Table, keys: &[&str], value: Value) {
    let (last, tables) = keys.split_last().unwrap();
    let table = tables.iter().fold(plan, |table, key| table[*key].as_table_mut().unwrap());
    table.insert((*last).to_owned(), value);
}

/// The claims of a quick run.
fn claims(study: &dyn ReadyStudy) -> Vec<Claim> {
    with_run(true, |run| study.run(run).unwrap().result.claims)
}

/// Asserts that every claim has this verdict and a reason that says why.
fn assert_all(claims: &[Claim], verdict: Verdict, reason: &str) {
    assert!(!claims.is_empty());
    for claim in claims {
        assert_eq!(claim.verdict(), verdict, "{claim}");
        assert!(claim.reason().contains(reason), "{claim}: {}", claim.reason());
    }
}

/// Asserts that no statement of the plan can be compared, and why.
fn assert_incomparable(study: &dyn ReadyStudy, why: &str) {
    let statements = with_run(true, |run| study.statements(run));
    assert!(!statements.is_empty());
    for (says, reason) in statements {
        assert!(reason.as_ref().is_some_and(|reason| reason.contains(why)), "{says}: {reason:?}");
    }
}

#[test]
fn hit_rates_of_the_rotated_display_alone_judge_nothing() {
    let study = edited("pbs-tlb", |plan| {
        set(plan, &["accesses", "table4", "workloads"], words(&["rotated-display"]));
        plan.insert("repeats".to_owned(), 1.into());
    });
    assert_all(&claims(&*study), Verdict::NotMeasured, "axis workload: no ");
}

#[test]
fn hit_rates_with_blocks_of_4_and_16_alone_judge_nothing() {
    let study = edited("pbs-tlb", |plan| {
        set(plan, &["memory", "blocks", "block_frames"], numbers(&[4, 16]));
        plan.insert("repeats".to_owned(), 1.into());
    });
    assert_all(&claims(&*study), Verdict::NotMeasured, "axis free_block_frames: no ");
}

#[test]
fn another_tlb_is_not_comparable() {
    for study in ["pbs-tlb", "pbs-system"] {
        for entries in [64, 128] {
            let study = edited(study, |plan| {
                set(plan, &["machine", "tlb_entries"], entries.into());
                set(plan, &["machine", "tlb_ways"], entries.into());
            });
            assert_incomparable(&*study, &format!("TLB entries: {entries} here, 32 in the paper"));
        }
    }
    let study = edited("pbs-tlb", |plan| {
        set(plan, &["machine", "tlb_entries"], 64.into());
        set(plan, &["machine", "tlb_ways"], 64.into());
        set(plan, &["accesses", "table4", "workloads"], words(&["rotated-display"]));
        set(plan, &["memory", "blocks", "block_frames"], numbers(&[4, 16]));
        plan.insert("repeats".to_owned(), 1.into());
    });
    assert_all(&claims(&*study), Verdict::NotComparable, "TLB entries: 64 here");
}

/// The timed system on rotated display alone, on blocks of 4 and 16.
#[test]
fn cycles_of_the_rotated_display_alone_judge_nothing() {
    let study = edited("pbs-system", |plan| {
        plan.insert("workloads".to_owned(), words(&["rotated-display"]));
        plan.insert("block_frames".to_owned(), numbers(&[4, 16]));
        plan.insert("repeats".to_owned(), 1.into());
        plan.remove("variants");
    });
    assert_all(&claims(&*study), Verdict::NotMeasured, "axis workload: no ");
}

/// What the format's bits leave of the gain, each page's own and those of a line together.
#[test]
fn a_line_of_descriptors_keeps_the_gain_of_an_ideal_field() {
    let study = edited("pbs-system", |plan| {
        plan.insert("workloads".to_owned(), words(&["rotated-display"]));
        plan.insert("block_frames".to_owned(), numbers(&[8]));
        plan.insert("repeats".to_owned(), 1.into());
        plan.remove("variants");
    });
    let result = with_run(true, |run| study.run(run)).unwrap().result;
    assert_eq!(result.fitted.len(), 3);
    let saved = |over: &str| -> Vec<f64> {
        let of = |series: &&Series| series.figure == "Contiguity fields" && series.design == over;
        result.series.iter().find(of).unwrap().points.iter().map(|point| point.y).collect()
    };
    for over in ["over PCAD", "over AT", "over TRAD"] {
        let [ideal, own, line] = saved(over)[..] else { panic!("{over}: three fields") };
        assert!(own < 0.6 * ideal && line > 0.9 * ideal, "{over}: {ideal} {own} {line}");
    }
    let names: Vec<&str> = result.series.iter().map(|series| series.design.as_str()).collect();
    for name in ["PBS", "PBS, ARMv7's own bits", "AT, ARMv7's bits of a line"] {
        assert!(names.contains(&name), "{name}");
    }
}

/// Cycles that nobody simulated, of every workload on blocks of these sizes.
fn cycles(sizes: &[u64], designs: &[(&str, f64)]) -> Grid {
    let mut grid = Grid::new(&[READING, CATEGORY, WORKLOAD, LEVEL, DESIGN], 2);
    for name in WorkloadName::ALL {
        for &size in sizes {
            for &(design, cycles) in designs {
                let category = name.category().title();
                let linear = name.category() == Category::I;
                // Designs are alike on category I and at block size 1.
                let cycles = if linear || size == 1 { 100.0 } else { cycles };
                let at = [AS_MEASURED, category, name.title()].map(Into::into);
                let at = at.into_iter().chain([size.into(), design.into()]).collect();
                let run = metrics([("cycles", cycles)]);
                grid.add(at, &[run.clone(), run]);
            }
        }
    }
    grid
}

/// The claims of the timed system on such cycles, by their words.
fn judged(grid: &Grid) -> BTreeMap<String, Claim> {
    let study = edited("pbs-system", |_| {});
    let plan = study.plan().downcast_ref::<SystemPlan>().unwrap();
    let statements = with_run(true, |run| System::claims(plan, run));
    let claims = statements.into_iter().map(|statement| statement.judge(grid));
    claims.map(|claim| (claim.says().to_owned(), claim)).collect()
}

const SIZES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const ALIKE: [(&str, f64); 4] = [("TRAD", 455.0), ("PCAD", 143.0), ("AT", 182.0), ("PBS", 100.0)];

#[test]
fn ten_claims_on_cycles() {
    let claims = judged(&cycles(&SIZES, &ALIKE));
    assert_eq!(claims.len(), 10);
    let verdict = |says: &str| claims.values().find(|one| one.says().contains(says)).unwrap();
    for (says, expected) in [
        ("Category I", Verdict::Holds),
        ("same as TRAD", Verdict::Holds),
        ("up to 52% better than AT", Verdict::Differs),
        ("up to 30% better than PCAD", Verdict::Holds),
        ("up to 67% better than AT", Verdict::Differs),
        ("up to 78% better than TRAD", Verdict::Holds),
        ("close to PCAD", Verdict::Differs),
        ("up to 45% better than AT", Verdict::Holds),
    ] {
        let claim = verdict(says);
        assert_eq!(claim.verdict(), expected, "{claim}");
    }
}

#[test]
fn cycles_on_blocks_of_4_and_16_alone_judge_nothing() {
    let claims: Vec<_> = judged(&cycles(&[4, 16], &ALIKE)).into_values().collect();
    assert_all(&claims, Verdict::NotMeasured, "axis free_block_frames: no ");
    // Nor is a gain of nothing over nothing zero.
    assert!(claims.iter().all(|claim| claim.measured().is_none()));
}

#[test]
fn cycles_without_a_baseline_judge_nothing_about_it() {
    for claim in judged(&cycles(&SIZES, &ALIKE[1..])).into_values() {
        let needs = claim.says().contains("TRAD") || claim.says().contains("all designs");
        assert_eq!(claim.verdict() == Verdict::NotMeasured, needs, "{claim}");
        assert!(!needs || claim.reason() == "axis design: no TRAD", "{}", claim.reason());
    }
}

#[test]
fn another_machine_or_load_of_the_timed_system_is_not_comparable() {
    let with = |keys: &'static [&'static str], value: Value| {
        edited("pbs-system", move |plan| set(plan, keys, value))
    };
    for (study, why) in [
        (with(&["system", "outstanding_max"], 32.into()), "transactions in flight: 32 here"),
        (with(&["machine", "bbs_max_order"], 11.into()), "MAX_ORDER of BBS: 11 here"),
        (with(&["free_per_requested"], 2.0.into()), "frames free for each requested: 2 here"),
        (
            with(&["shapes"], Table::from_iter([("image_width".to_owned(), 640.into())]).into()),
            "sizes",
        ),
    ] {
        assert_incomparable(&*study, why);
    }
}

#[test]
fn worked_examples_are_counted_apart() {
    let all = claims(&*edited("pbs-cases", |_| {}));
    let tally = Tally::of(&all);
    assert_eq!((tally.examples, tally.comparable()), ((43, 43), 0));
    // Another layout is another case.
    let study = edited("pbs-cases", |plan| set(plan, &["fig_8", "request_frames"], 3.into()));
    let table_2: Vec<Claim> =
        claims(&*study).into_iter().filter(|claim| claim.place() == "Table 2").collect();
    assert_all(&table_2, Verdict::NotComparable, "pages requested: 3 here, 4 in the paper");
}

#[test]
fn costs_are_judged_on_the_papers_load() {
    let study = edited("pbs-allocation", |_| {});
    let statements = with_run(false, |run| study.statements(run));
    assert_eq!(statements.len(), 8);
    for (says, reason) in statements {
        assert!(reason.is_none(), "{says}: {reason:?}");
        let eager = says.contains("Eager");
        assert_eq!(says.contains("instructions, BBS without contiguity"), eager, "{says}");
    }
    // A plan without a load of its own for instructions, as plans once were.
    let smaller = edited("pbs-allocation", |plan| {
        plan.remove("counted");
        plan.insert("request_frames".to_owned(), 32.into());
        plan.insert("demand_frames".to_owned(), 8.into());
    });
    assert_incomparable(&*smaller, "here, 900 in the paper");
}

/// Costs that nobody measured: of each work by design, on both structures.
fn costs(sizes: &[u64], works: &[(&str, &str, f64)], metric: &str) -> Grid {
    let mut grid = Grid::new(&["work", "design", "structure", "free_block_frames"], 2);
    for &(work, design, cost) in works {
        for structure in ["lists", "bitmaps"] {
            for &size in sizes {
                let at = vec![work.into(), design.into(), structure.into(), size.into()];
                let run = metrics([(metric, cost)]);
                grid.add(at, &[run.clone(), run]);
            }
        }
    }
    grid
}

fn found(sizes: &[u64]) -> Costs {
    let times = [
        ("Fig. 19", "BBS", 100.0),
        ("Fig. 19", "BBS with contiguity", 160.0),
        ("Fig. 19", "PBS", 78.0),
        ("Fig. 19", "PBS, contiguity in the descriptor", 70.0),
        ("Fig. 20", "BBS", 100.0),
        ("Fig. 20", "PBS", 83.0),
    ];
    let (request, single) = ("Fig. 19, allocator alone", "Fig. 20");
    let back = "De-allocation of ";
    let (request_back, single_back) = (format!("{back}{request}"), format!("{back}{single}"));
    let steps = [(request, 0.5), (&*request_back, 1.25), (single, 0.9), (&*single_back, 0.75)];
    let steps: Vec<_> = steps
        .iter()
        .flat_map(|&(work, ratio)| [(work, "BBS", 100.0), (work, "PBS", 100.0 * ratio)])
        .collect();
    Costs {
        counts: Ok(costs(sizes, &times, "instructions")),
        times: costs(sizes, &times, "nanoseconds"),
        steps: costs(sizes, &steps, "steps"),
        blocks: Grid::new(&["design", "free_block_frames"], 2),
    }
}

#[test]
fn costs_under_both_readings() {
    let study = edited("pbs-allocation", |_| {});
    let plan = study.plan().downcast_ref::<AllocationPlan>().unwrap();
    let judge_in = |quick: bool, counting, found: &Costs| -> Vec<Claim> {
        let statements = with_run(quick, |run| claims_counted(plan, run, counting));
        statements.into_iter().map(|statement| statement.judge(found)).collect()
    };
    let judge = |found: &Costs| judge_in(false, Counting::Stepped, found);
    // A quick run that steps counts fewer pages than the paper requests.
    let stepped = judge_in(true, Counting::Stepped, &found(&SIZES));
    assert_all(&stepped, Verdict::NotComparable, "here, 900 in the paper");
    let simulated = judge_in(true, Counting::Simulated, &found(&SIZES));
    let verdicts = |claims: &[Claim]| claims.iter().map(Claim::verdict).collect::<Vec<_>>();
    assert_eq!(verdicts(&simulated), verdicts(&judge(&found(&SIZES))));
    let uncounted = Costs { counts: Err("no counter".to_owned()), ..found(&SIZES) };
    assert_all(
        &judge(&uncounted),
        Verdict::NotMeasured,
        "axis instructions: no count (no counter)",
    );
    let of = |sizes: &[u64]| judge(&found(sizes));
    let claims = of(&SIZES);
    let measured: Vec<i32> =
        claims.iter().map(|claim| (100.0 * claim.measured().unwrap()).round() as i32).collect();
    assert_eq!(measured, [22, -22, 22, 17, 22, -22, 22, 17]);
    let (eager, demand) = (&claims[0], &claims[3]);
    assert_eq!((eager.verdict(), demand.verdict()), (Verdict::Holds, Verdict::Holds));
    // The reading was chosen after looking; single pages are not read in two ways.
    assert!(eager.fitted().contains("BBS writes no contiguity") && demand.fitted().is_empty());
    assert_all(&of(&[1, 32])[..4], Verdict::NotMeasured, "axis free_block_frames: no ");

    let shown = with_run(true, |run| Allocation::show(plan, run, &found(&SIZES)));
    assert!(
        shown.finding.contains(
            "take 50% fewer steps with PBS than with BBS to allocate a request and 25% more to \
             free its blocks; for single pages 10% fewer and 25% fewer."
        ),
        "{}",
        shown.finding
    );
    let host = shown.host.unwrap();
    let readings = host.figures.iter().find(|drawn| drawn.figure.id == "Readings").unwrap();
    // Instructions stand beside the times where all are counted.
    let times = readings.series.iter().filter(|one| one.design.ends_with("(time)"));
    let table: Vec<(&str, Vec<i32>)> = times
        .map(|one| {
            let points = one.points.iter().map(|point| (100.0 * point.y).round() as i32);
            (one.design.as_str(), points.collect())
        })
        .collect();
    assert_eq!(
        table,
        [
            ("BBS writes descriptors alone (time)", vec![22, -22, 22, 17]),
            ("BBS writes contiguity too (time)", vec![51, -51, 51]),
            ("PBS writes it into the descriptor (time)", vec![30, -30, 30]),
        ]
    );
    let ids = shown.figures.iter().chain(&host.figures).map(|drawn| drawn.figure.id.as_str());
    let freed = ids.filter(|id| id.starts_with("De-allocation of Fig. ")).count();
    // Steps of requests and single pages; times of these, and with the page table.
    assert_eq!(freed, 2 + 3);
}

#[test]
fn nodes_of_one_size_are_no_mean() {
    let study = edited("pbs-freelist", |plan| {
        plan.insert("block_frames".to_owned(), numbers(&[1]));
        plan.insert("repeats".to_owned(), 2.into());
        plan.remove("aged");
    });
    let claims = claims(&*study);
    let verdicts: Vec<Verdict> = claims.iter().map(Claim::verdict).collect();
    assert_eq!(verdicts, [Verdict::Identity, Verdict::NotMeasured]);
    assert_eq!(claims[1].reason(), "axis memory: no 2, 4, 8, 16, 32, 64, 128, 256");
}

/// The means of a line of a quick run, by its figure.
fn line(result: &StudyResult, figure: &str, design: &str) -> Vec<f64> {
    let mut lines = result.series.iter();
    let line = lines.find(|one| one.figure == figure && one.design == design).unwrap();
    line.points.iter().map(|point| point.y).collect()
}

#[test]
fn bytes_lists_and_places_of_the_free_lists() {
    let study = edited("pbs-freelist", |plan| {
        plan.insert("repeats".to_owned(), 3.into());
        set(plan, &["varied", "repeats"], 3.into());
        plan.remove("aged");
    });
    let result = with_run(true, |run| study.run(run).unwrap().result);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let less = |ours: &[f64], theirs: &[f64]| {
        let saved = ours.iter().zip(theirs).map(|(ours, theirs)| 1.0 - ours / theirs);
        100.0 * mean(&saved.collect::<Vec<_>>())
    };

    // A node takes a link and an integer, and a list a head, of 4 bytes each.
    let bbs = line(&result, "Bytes", "BBS");
    let nodes = line(&result, "Fig. 21", "BBS");
    let expected = nodes.iter().map(|nodes| 9.0 * 4.0 + nodes * 8.0);
    assert!(bbs.iter().zip(expected).all(|(bytes, expected)| (bytes - expected).abs() < 1e-6));
    let packed = line(&result, "Bytes", "PBS");
    let tuple = line(&result, "Bytes", "PBS, two integers in a node");
    assert_eq!((bbs[0], packed[0], tuple[0]), (8228.0, 8204.0, 12_300.0));

    // Nine lists are looked at for a page of blocks of one, and three.
    let (lists, ours) =
        (line(&result, "Lists for a page", "BBS"), line(&result, "Lists for a page", "PBS"));
    assert_eq!((lists[0], ours[0]), (9.0, 3.0));
    assert!(lists.iter().all(|&lists| (9.0..17.0).contains(&lists)), "{lists:?}");
    assert!(ours.iter().all(|&lists| (3.0..5.0).contains(&lists)), "{ours:?}");

    // An aligned block is one node in either.
    let aligned = line(&result, "Share and alignment", "PBS, blocks aligned");
    assert_eq!(aligned, [0.0; 3]);
    let anywhere = line(&result, "Share and alignment", "PBS, blocks anywhere");
    assert!(anywhere.iter().all(|saved| (0.3..0.6).contains(saved)), "{anywhere:?}");

    let saved = less(&line(&result, "Fig. 21", "PBS"), &nodes);
    for part in [
        format!("PBS has {saved:.0}% fewer nodes than BBS"),
        "aligned to its size, it has 0% fewer".to_owned(),
        format!("take {:.0}% fewer bytes with the paper's packed node", less(&packed, &bbs)),
        format!("{:.0}% fewer with two integers", less(&tuple, &bbs)),
        format!("looks at {:.1} lists, BBS at {:.1}", mean(&ours), mean(&lists)),
    ] {
        assert!(result.finding.contains(&part), "{part}: {}", result.finding);
    }
}

/// The error for a built-in plan in which the lines of some keys are replaced.
fn refused(study: &str, replaced: &[(&str, &str)]) -> String {
    let mut lines: Vec<String> = text(study).lines().map(str::to_owned).collect();
    for &(key, value) in replaced {
        let mut found = 0;
        for line in &mut lines {
            if line.split_once('=').is_some_and(|(this, _)| this.trim() == key) {
                *line = format!("{key} = {value}");
                found += 1;
            }
        }
        assert!(found > 0, "{study} has no {key}");
    }
    match registry::parse("mutant", &lines.join("\n")) {
        Ok(_) => format!("{replaced:?} is no error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_plan_that_cannot_be_run_is_refused_by_its_key() {
    // 33 orders are one more than can have a list.
    let orders = [("pbs_granularity", "1"), ("pbs_top_order", "32")];
    for (study, replaced, key) in [
        ("pbs-tlb", &[("free_share", "\"x\"")][..], "free_share"),
        ("pbs-tlb", &[("free_per_requested", "[]")], "free_per_requested"),
        ("pbs-tlb", &[("free_share", "1e-9")], "memory.blocks.free_share"),
        ("pbs-tlb", &orders, "machine.pbs_top_order"),
        ("pbs-tlb-aged", &[("operations", "-1")], "operations"),
        ("pbs-tlb-aged", &[("workloads", "[\"sorting\"]")], "workloads"),
        ("pbs-tlb-real", &[("file", "1")], "file"),
        ("pbs-system", &[("walks_max", "2")], "system.walks_max"),
        ("pbs-system", &[("name", "\"as measured\"")], "variants.readings"),
        ("pbs-system", &[("others", "[40]")], "fields.others"),
        ("pbs-system-cpu", &[("l2_sets", "48")], "hierarchy.l2_sets"),
        ("pbs-freelist", &[("free_share", "1e-300")], "free_share"),
        ("pbs-freelist", &[("granularity", "1"), ("top_order", "32")], "pbs"),
        // Memory is never fuller than at its peak.
        ("pbs-freelist", &[("used_shares", "[0.999]")], "aged.used_shares"),
        // Two series of a figure cannot have one name.
        ("pbs-freelist", &[("design", "\"PBS\"")], "pbs"),
        ("pbs-freelist", &[("free_shares", "[0.9]")], "varied.free_shares"),
        ("pbs-allocation", &[("request_frames", "5000")], "request_frames"),
        ("pbs-allocation", &[("design", "\"BBS with contiguity\"")], "pbs"),
        ("pbs-widths", &[("widths", "[17]")], "widths"),
        ("pbs-widths", &[("free_share", "1e-9")], "free_share"),
        ("pbs-cases", &[("request_frames", "9")], "fig_8.request_frames"),
        ("pbs-cases", &[("a", "[[4, 4], [0, 4]]")], "fig_8.a"),
        ("pbs-fit", &[("requests", "0")], "requests"),
        ("pbs-beyond", &[("tile_elements", "[0]")], "tile_elements"),
        ("pbs-beyond", &[("fault_around", "[3]")], "demand.fault_around"),
        ("pbs-beyond", &[("walks_max", "2")], "cycles.system.walks_max"),
        ("pbs-beyond", &[("dma_share", "0.01")], "mixed.dma_share"),
        ("pbs-beyond", &[("cpu_order_max", "9")], "mixed.cpu_order_max"),
        ("pbs-beyond", &[("cpu_order_large", "9")], "mixed.cpu_order_large"),
    ] {
        let said = refused(study, replaced);
        assert!(said.contains("plan mutant") && said.contains(key), "{replaced:?}: {said}");
        assert!(said.contains("line "), "{replaced:?}: {said}");
    }
}

#[test]
fn the_memory_of_the_timed_study_is_part_of_its_plan() {
    let with = |dram: &str| {
        registry::parse("mutant", &format!("{}\n[dram]\n{dram}\n", text("pbs-system")))
    };
    for (dram, key) in [
        ("interleave_bytes = 96", "dram.interleave_bytes"),
        ("interleave_bytes = 32", "interleave_bytes"),
        ("queue_entries = 0", "queue_entries"),
        ("write_high = 3", "dram.write_high"),
        ("write_entries = 8", "dram.write_high"),
        ("bypasses = 1", "unknown field `bypasses`"),
    ] {
        let said = with(dram).err().unwrap().to_string();
        assert!(said.contains(key) && said.contains("line "), "{dram}: {said}");
    }
    // Without the table the plan is run with Table 3's, and says so.
    let plain = edited("pbs-system", |_| {});
    let plan = |study: &dyn ReadyStudy| study.plan().downcast_ref::<SystemPlan>().unwrap().dram;
    assert_eq!(plan(&*with("").unwrap()), plan(&*plain));
    assert!(
        plan(&*plain).describe().contains("every 64 bytes; queues of 16 requests, bank hits first")
    );
    assert_incomparable(&*with("queue_entries = 32").unwrap(), "memory's queue: 32 here, 16 in");
    assert_incomparable(&*with("hits_first = false").unwrap(), "bank hits first");
}
