//! The workload and the part in the reports of studies.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use swath_lab::study::results::StudyResult;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The results of a study of the page buddy system, in its quick form with a plan that was changed; or
/// what was said.
fn run(study: &str, change: impl FnOnce(&mut toml::Table)) -> Result<StudyResult, String> {
    let room = tempfile::tempdir().expect("a folder");
    let text =
        fs::read_to_string(format!("{ROOT}/crates/swath-lab/src/papers/page_buddy/{study}.toml"));
    let mut plan: toml::Table = text.expect("a plan").parse().expect("a plan");
    change(&mut plan);
    let (file, out) = (room.path().join("plan.toml"), room.path().join("report"));
    fs::write(&file, plan.to_string()).expect("written");
    let mut run = Command::new(env!("CARGO_BIN_EXE_swath-example-workloads"));
    let run = run.args(["study", "--quick", "--plan"]).arg(&file).arg("--out").arg(&out);
    let output = run.output().expect("it starts");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let name = plan["about"]["study"].as_str().expect("a name");
    let results = fs::read_to_string(out.join(name).join("results.json")).expect("results");
    Ok(serde_json::from_str(&results).expect("JSON"))
}

/// Sets keys of a plan, each given as a line of TOML with the key's tables in it.
fn set(plan: &mut toml::Table, lines: &str) {
    fn merge(into: &mut toml::Table, from: toml::Table) {
        for (key, value) in from {
            match (into.get_mut(&key), value) {
                (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
                (_, value) => drop(into.insert(key, value)),
            }
        }
    }
    merge(plan, lines.parse().expect("TOML"));
}

fn drop_keys(plan: &mut toml::Table, keys: &[&str]) {
    keys.iter().for_each(|key| drop(plan.remove(*key)));
}

/// The cycles of a design on the hash join.
fn cycles(result: &StudyResult, design: &str) -> f64 {
    let of = |one: &&swath_lab::study::results::Series| {
        one.figure == "Hash join" && one.design == design
    };
    result.series.iter().find(of).expect("a series").points[0].y
}

#[test]
fn the_workload_is_in_figures_of_hit_rates_and_in_no_claim() {
    let few = "repeats.quick = 1\naccesses.table4.workloads = [\"rotated-display\"]\n\
               memory.blocks.block_frames = [4, 16]";
    let result = run("tlb", |plan| set(plan, few)).expect("it runs");
    let ids: BTreeSet<&str> = result.figures.iter().map(|figure| figure.id.as_str()).collect();
    assert!(ids.contains("Hash join") && ids.contains("Fig. 12"), "{ids:?}");
    let points = |one: &swath_lab::study::results::Series| {
        one.figure == "Hash join" && one.points.len() == 2
    };
    assert_eq!(result.series.iter().filter(|one| points(one)).count(), 4);
    let claims = |result: &StudyResult| {
        result.claims.iter().map(|claim| (claim.reason(), claim.n())).collect::<Vec<_>>()
    };
    // As without it: nothing of category II but the rotated display was measured.
    assert!(claims(&result).iter().all(|(reason, _)| !reason.contains("Hash join")));
    let named = |plan: &mut toml::Table| {
        set(
            plan,
            "workload = \"hash-join\"\nrepeats.quick = 1\nwidths = [2]\nformats = [\"armv8\"]",
        );
    };
    let widths = run("widths", named).expect("it runs");
    assert!(widths.plan["workload"] == "hash-join" && !widths.series.is_empty());
}

#[test]
fn the_workload_and_the_part_are_in_figures_of_cycles() {
    let part = concat!(env!("CARGO_MANIFEST_DIR"), "/parts/ddr4-2400.toml");
    let on = |dram: &str| {
        let keys = format!(
            "repeats.quick = 1\nworkloads = [\"matrix-transpose\"]\nblock_frames = [8]\n{dram}"
        );
        run("system", |plan| {
            drop_keys(plan, &["variants", "fields", "category_i_block_frames"]);
            set(plan, &keys);
        })
        .expect("it runs")
    };
    let paper = on("");
    let ours = on(&format!("dram.part = {part:?}\ndram.channels = 2"));
    for (result, mhz) in [(&paper, "400 MHz"), (&ours, "1200 MHz")] {
        assert!(result.finding.contains(mhz), "{}", result.finding);
        assert!(cycles(result, "PBS") < cycles(result, "TRAD"));
        assert!(result.figures.iter().any(|figure| figure.id == "Energy"));
    }
    // Writes as another rule has them: other cycles, and no claim of the paper's.
    let by_rule = on("dram.write_rule = \"more-writes\"");
    assert_ne!(cycles(&by_rule, "TRAD"), cycles(&paper, "TRAD"));
    assert!(by_rule.claims.iter().any(|claim| claim.reason().contains("serves writes by a rule")));
    // Half the channels and slower in cycles, if not in seconds.
    assert!(cycles(&ours, "TRAD") > cycles(&paper, "TRAD"));
    assert!(ours.claims.iter().any(|claim| claim.reason().contains("memory")));
}

/// The file says what the table of such a part says in code, as far as the two are one.
#[test]
fn a_part_that_is_wrong_is_refused_with_file_key_and_line() {
    let good = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/parts/ddr4-2400.toml"));
    let good = good.expect("a part");
    let room = tempfile::tempdir().expect("a folder");
    let file = room.path().join("mine.toml");
    for (from, to, says) in [
        ("row_bits = 16", "row_bits = 99", "row_bits: row_bits cannot be 99"),
        ("row_bits = 16", "row_bits = -1", "row_bits: "),
        ("banks_per_group = 4", "banks_per_group = 3", "banks_per_group"),
        ("bus_bytes = 8", "bus_bytes = 4", "bursts of 32 bytes; the system's are of 64"),
        ("clock_period_ps = 833", "clock_period_ps = 0", "clock_period_ps"),
        ("column_bits = 10\n", "", "column_bits"),
        ("column_bits = 10", "colour_bits = 10", "colour_bits"),
        ("\"read\", \"write\"", "\"read\", \"right\"", "constraints.0.to.1"),
        ("scope = \"bank\"", "scope = \"set\"", "constraints"),
        ("cycles = 17 },", "cycles = 4294967295 },", "tRCD cannot be 4294967295"),
        ("refresh_interval_cycles = 9360", "refresh_interval_cycles = 100", "is due every 100"),
        ("idd0_ma = 48", "idd0_ma = 4800000000", "currents.idd0_ma"),
        ("name = \"DDR4-2400 17-17-17\"", "name = \"\"", "name"),
    ] {
        assert!(good.contains(from), "{from}");
        fs::write(&file, good.replacen(from, to, 1)).expect("written");
        let error = run("system", |plan| {
            set(plan, &format!("dram.part = {:?}", file.display().to_string()));
        });
        let error = error.expect_err("it is refused");
        assert!(error.contains("dram.part: ") && error.contains(says), "{to}: {error}");
        let place = error.contains("mine.toml: line ") || says.contains("bursts") || to.is_empty();
        assert!(error.contains("line ") && place, "{to}: {error}");
    }
    for (part, says) in
        [("ddr6", "there are ddr3-800"), ("none.toml", "none.toml"), ("", "no part")]
    {
        let error = run("system", |plan| {
            set(plan, &format!("dram.part = {part:?}"));
        });
        let error = error.expect_err("it is refused");
        assert!(error.contains(says) && error.contains("dram.part: "), "{part}: {error}");
    }
}

#[test]
fn a_rule_that_there_is_not_is_refused() {
    for (dram, says) in [
        ("dram.write_rule = \"longest\"", "no rule \"longest\"; there are more-writes"),
        ("dram.write_rule = \"more-writes\"\ndram.write_entries = 0", "no places of their own"),
    ] {
        let error = run("system", |plan| set(plan, dram)).expect_err("it is refused");
        assert!(error.contains("dram.write_rule") && error.contains(says), "{error}");
    }
}
