//! `rtl-cost`: each form of the hardware beside its hits, and machines that it does not have; `pbs-reach`: on each format, with one entry and with many, whatever the fields; and by what its ways must
//! have in common.

use crate::runs::{text, with_run};
use swath_lab::study::registry;
use swath_lab::study::results::StudyResult;

fn run(replaced: &[(&str, &str)], machine: &str) -> StudyResult {
    let mut plan: toml::Table = toml::from_str(text("pbs-reach")).unwrap();
    for (key, value) in replaced {
        let value: toml::Table = format!("value = {value}").parse().unwrap();
        let table = match key.split_once('.') {
            Some((table, _)) => plan[table].as_table_mut().unwrap(),
            None => &mut plan,
        };
        let key = key.rsplit('.').next().unwrap();
        assert!(table.insert(key.to_owned(), value["value"].clone()).is_some(), "no {key}");
    }
    plan.insert("machine".to_owned(), machine.parse::<toml::Table>().unwrap().into());
    let plan = toml::to_string(&plan).unwrap();
    let study = registry::parse("reach", &plan).unwrap_or_else(|error| panic!("{error}\n{plan}"));
    with_run(true, |run| study.run(run)).unwrap_or_else(|error| panic!("{error}\n{plan}")).result
}

fn values(result: &StudyResult, figure: &str, design: &str) -> Vec<f64> {
    let is =
        |one: &&swath_lab::study::results::Series| one.figure == figure && one.design == design;
    let series = result.series.iter().find(is);
    series.map_or(Vec::new(), |series| series.points.iter().map(|point| point.y).collect())
}

const SMALL: [(&str, &str); 5] = [
    ("repeats", "2"),
    ("workloads", "[\"matrix-transpose\"]"),
    ("block_frames", "[1, 5, 64]"),
    ("nested.workloads", "[\"rotated-display\"]"),
    ("nested.block_frames", "[1, 64]"),
];

#[test]
fn each_format_is_measured() {
    for (format, levels) in [("armv7", 2), ("armv8", 4), ("x86-64", 4), ("sv39", 3), ("sv48", 4)] {
        let result = run(&SMALL, &format!("format = \"{format}\""));
        let of = |figure: &str, design: &str| values(&result, figure, design);
        // In blocks of one page nothing can be joined.
        for frames in ["On BBS", "On PBS"] {
            let pages = of(frames, "4 KiB pages");
            assert!(pages[0] > 0.0 && pages[0] < 1.0, "{format}: {pages:?}");
            for way in ["Zen", "CoLT, a line", "fragments", "AT", "PCAD", "all page sizes"] {
                let rates = of(frames, way);
                assert_eq!(rates.len(), 3, "{format}: {way}");
                assert_eq!(rates[0], pages[0], "{format}: {way}");
                // A longer entry never makes these wait more.
                assert!(rates[2] >= pages[2], "{format}: {way} {rates:?}");
            }
            assert_eq!(of(frames, "64 KiB pages").len(), if format == "x86-64" { 0 } else { 3 });
            let [pcad, fragments] = ["PCAD", "fragments"].map(|way| of(frames, way)[2]);
            assert!(pcad >= fragments, "{format}: {pcad} {fragments}");
        }
        // BBS has aligned blocks, of which a fragment takes all: as PCAD, but where two blocks went on.
        let [pcad, fragments] = ["PCAD", "fragments"].map(|way| of("On BBS", way)[2]);
        assert!((pcad - fragments).abs() < 0.002, "{format}: {pcad} {fragments}");
        // On the blocks of PBS, which lie anywhere, what is aligned gains less.
        for way in ["Zen", "fragments"] {
            let [bbs, pbs] = ["On BBS", "On PBS"].map(|frames| of(frames, way)[2]);
            assert!(bbs > pbs + 0.02, "{format}: {way} {bbs} {pbs}");
        }
        // Half of the accesses of the display miss; each miss reads both tables.
        let reads = f64::from(levels * levels + 2 * levels);
        let under = of("Under a hypervisor", "4 KiB pages");
        assert!(under.iter().all(|one| (one / reads - 0.5).abs() < 0.01), "{format}: {under:?}");
        let with_tlb = of("Under a hypervisor, 32 entries for the host", "4 KiB pages");
        assert!(with_tlb.iter().zip(&under).all(|(with, without)| with < without));
    }
}

#[test]
fn any_tlb_and_any_field_is_measured() {
    let machines = [
        "format = \"armv8\"\ntlb_entries = 1",
        "format = \"armv8\"\ntlb_entries = 3\ntlb_replacement = \"random\"",
        "format = \"x86-64\"\ntlb_entries = 64\ntlb_ways = 4\ncontiguity_bits = \"format\"",
        "format = \"sv39\"\ntlb_entries = 16\ncontiguity_bits = \"line\"\nanchor_log2 = 3",
    ];
    for machine in machines {
        let result = run(&SMALL, machine);
        let points = result.series.iter().flat_map(|series| &series.points);
        assert!(points.clone().count() > 60, "{machine}");
        let rates = result.series.iter().filter(|series| series.y == "share_without_wait");
        let mut rates = rates.flat_map(|series| &series.points);
        assert!(rates.all(|point| (0.0..=1.0).contains(&point.y)), "{machine}");
    }
}

fn hardware(replaced: &[(&str, &str)]) -> Result<StudyResult, String> {
    let mut plan: toml::Table = toml::from_str(text("rtl-cost")).unwrap();
    let workloads = [("repeats", "1"), ("workloads", "[\"matrix-transpose\"]")];
    for (key, value) in workloads.iter().chain(replaced) {
        let value: toml::Table = format!("value = {value}").parse().unwrap();
        let (table, key) = match key.split_once('.') {
            Some((table, key)) => (plan[table].as_table_mut().unwrap(), key),
            None => (&mut plan, *key),
        };
        table.insert(key.to_owned(), value["value"].clone());
    }
    let plan = toml::to_string(&plan).unwrap();
    let study = registry::parse("hardware", &plan).map_err(|error| error.to_string())?;
    with_run(true, |run| study.run(run)).map(|ran| ran.result).map_err(|error| error.to_string())
}

#[test]
fn each_form_of_the_hardware_stands_beside_its_hits() {
    let result = hardware(&[("block_frames", "[5, 64]")]).unwrap();
    let points = |frames: &str, form: &str| -> Vec<f64> {
        values(&result, &format!("Hits for cells, {frames}"), form)
    };
    for frames in ["BBS", "PBS"] {
        // Where runs are joined, those within one table hit as often.
        assert_eq!(points(frames, "run"), points(frames, "run, one table"));
        assert_eq!(points(frames, "aligned"), points(frames, "aligned, one table"));
        for form in ["page", "aligned", "run"] {
            let rates = points(frames, form);
            assert_eq!(rates.len(), 4, "{form}");
            assert!(rates.iter().all(|rate| (0.0..=1.0).contains(rate)), "{form} {rates:?}");
        }
    }
    // Eight entries of runs have more hits than 64 of aligned pages, as blocks of PBS lie anywhere.
    assert!(points("PBS", "run")[0] > points("PBS", "aligned")[3] + 0.05);
    let columns: Vec<&str> = (result.series.iter())
        .filter(|series| series.figure == "TLB")
        .map(|series| series.design.as_str())
        .collect();
    assert!(columns.contains(&"iCE40 LUT4") && columns.contains(&"MHz, ECP5"), "{columns:?}");
    let arrays = values(&result, "Other units", "ECP5 LUT4");
    assert_eq!(arrays.len(), 3, "RTMMU by arrays, by nodes, and the page table's unit");
}

#[test]
fn hardware_that_was_not_synthesised_is_refused() {
    for (key, value, says) in [
        ("tlb_entries", "[5]", "no TLB of 5 entries"),
        ("machine.tlb_replacement", "\"random\"", "the hardware has lru and fifo"),
        ("machine.tlb_replacement", "\"lru\"", "no TLB of 8 entries"),
        ("machine.tlb_ways", "4", "the hardware is fully associative"),
    ] {
        let error = hardware(&[(key, value)]).unwrap_err();
        assert!(error.contains(says), "{key}: {error}");
    }
    hardware(&[("machine.tlb_replacement", "\"lru\""), ("tlb_entries", "[32]")]).unwrap();
}
