//! The costs of the units in `rtl/`, as `cargo xtask rtl cost` has written them, and the forms of its TLB.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::papers::page_buddy::reach::ways::Way;

/// The table.
const TABLE: &str = include_str!("../../../../data/hardware.csv");

/// The name of the TLB in it.
const TLB: &str = "TLB";

/// Bits of a page's number in the rows that are compared.
const PAGE_BITS: u64 = 20;

/// The name of the FPGA on which all sizes were looked at.
pub(super) const ECP5: &str = "ECP5 LUT4";

/// All targets.
pub(super) const TARGETS: [&str; 3] = [ECP5, "iCE40 LUT4", "gates of two inputs"];

/// The entries of which all targets were looked at.
pub(super) const MIDDLE: u64 = 32;

/// A synthesised unit.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(super) struct Cost {
    unit: String,
    form: String,
    entries: Option<u64>,
    page_bits: Option<u64>,
    replacement: String,
    pub(super) target: String,
    pub(super) cells: u64,
    pub(super) flip_flops: u64,
    pub(super) clock_mhz: Option<f64>,
}

static COSTS: LazyLock<Vec<Cost>> = LazyLock::new(|| {
    let rows = csv::Reader::from_reader(TABLE.as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>().expect("a test reads the table that comes with the program")
});

/// A form of the TLB, and the model that has its hits.
pub(super) struct Form {
    pub(super) name: &'static str,
    pub(super) way: Way,
}

/// The forms, the plain one first.
pub(super) const FORMS: [Form; 5] = [
    Form { name: "page", way: Way::Pages },
    Form { name: "aligned", way: Way::Aligned },
    Form { name: "aligned, one table", way: Way::Fragments },
    Form { name: "run", way: Way::Pcad },
    Form { name: "run, one table", way: Way::Table },
];

/// The form of this name.
pub(super) fn form(name: &str) -> Option<&'static Form> {
    FORMS.iter().find(|form| form.name == name)
}

/// The cost of a TLB with 20 bits for pages and for frames.
pub(super) fn tlb(
    form: &Form,
    entries: u64,
    replacement: &str,
    target: &str,
) -> Option<&'static Cost> {
    COSTS.iter().find(|cost| {
        (cost.unit.as_str(), cost.form.as_str(), cost.replacement.as_str(), cost.target.as_str())
            == (TLB, form.name, replacement, target)
            && (cost.entries, cost.page_bits) == (Some(entries), Some(PAGE_BITS))
    })
}

/// The entries of which all forms were synthesised with this replacement, ascending.
pub(super) fn entries(replacement: &str) -> Vec<u64> {
    let mut all: Vec<u64> = COSTS.iter().filter_map(|cost| cost.entries).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|&entries| FORMS.iter().all(|form| tlb(form, entries, replacement, ECP5).is_some()));
    all
}

/// The costs of the other units on each target, by unit.
pub(super) fn units() -> Vec<(String, Vec<&'static Cost>)> {
    let mut all: Vec<(String, Vec<&Cost>)> = Vec::new();
    for cost in COSTS.iter().filter(|cost| cost.unit != TLB) {
        match all.iter_mut().find(|(unit, _)| *unit == cost.unit) {
            Some((_, costs)) => costs.push(cost),
            None => all.push((cost.unit.clone(), vec![cost])),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_costs() {
        for target in TARGETS {
            for form in &FORMS {
                assert!(tlb(form, MIDDLE, "in turn", target).is_some(), "{} {target}", form.name);
            }
        }
        assert_eq!(entries("in turn"), [8, 16, 32, 64]);
        assert_eq!(entries("LRU"), [32]);
        assert!(entries("random").is_empty());
        let units: Vec<String> = units().into_iter().map(|(unit, _)| unit).collect();
        assert_eq!(units, ["rtmmu_arrays", "rtmmu_nodes", "page_table_unit"]);
    }
}
