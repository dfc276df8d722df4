//! The table of which crate may depend on which.
//!
//! The table is the architecture: lower crates never see higher ones, and the
//! software side (`swath-vm`) and the hardware side (`swath-hw`) never see each
//! other, so that each can check the other through bytes alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::bench::BENCH;
use crate::fuzz_program::FUZZ;
use crate::lint::tree::{Edge, Tree};

/// Each crate and what it may depend on.
pub(crate) const TABLE: &[(&str, &[&str])] = &[
    ("swath-arch", &[]),
    ("swath-frame", &["swath-arch"]),
    ("swath-heap", &["swath-arch"]),
    ("swath-pool", &["swath-arch"]),
    ("swath-hw", &["swath-arch"]),
    ("swath-vm", &["swath-arch", "swath-frame"]),
    ("swath-region", &["swath-arch", "swath-frame", "swath-heap"]),
    ("swath-cmt", &["swath-arch", "swath-frame", "swath-pool"]),
    ("swath-preload", &[]),
    ("swath-trace", &["swath-arch", "swath-preload"]),
    (
        "swath-lab",
        &[
            "swath-arch",
            "swath-frame",
            "swath-vm",
            "swath-region",
            "swath-heap",
            "swath-pool",
            "swath-cmt",
            "swath-hw",
            "swath-trace",
        ],
    ),
    ("swath", &["swath-hw", "swath-lab", "swath-trace"]),
    ("swath-example-arceos", &["swath-arch", "swath-frame"]),
    ("swath-example-kernels", &["swath-arch", "swath-frame"]),
    ("swath-example-designs", &["swath", "swath-arch", "swath-frame", "swath-hw", "swath-lab"]),
    ("swath-example-workloads", &["swath", "swath-hw", "swath-lab"]),
    (
        "swath-ffi",
        &[
            "swath-arch",
            "swath-frame",
            "swath-vm",
            "swath-region",
            "swath-heap",
            "swath-hw",
            "swath-pool",
            "swath-cmt",
        ],
    ),
    ("swath-malloc", &["swath-cmt"]),
    ("swath-prove", &["swath-arch"]),
    ("swath-py", &["swath-arch", "swath-frame", "swath-trace", "swath-lab"]),
    (
        BENCH,
        &[
            "swath-arch",
            "swath-frame",
            "swath-vm",
            "swath-region",
            "swath-heap",
            "swath-pool",
            "swath-hw",
        ],
    ),
    (
        FUZZ,
        &[
            "swath-arch",
            "swath-frame",
            "swath-vm",
            "swath-region",
            "swath-heap",
            "swath-pool",
            "swath-hw",
            "swath-trace",
            "swath-lab",
            "swath-cmt",
            "swath-ffi",
        ],
    ),
    ("xtask", &[]),
];

/// The two sides that meet only in bytes, in tests too.
const SEPARATE_SIDES: [(&str, &str); 2] = [("swath-vm", "swath-hw"), ("swath-hw", "swath-vm")];

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    against_table(&tree.edges)
}

fn against_table(edges: &[Edge]) -> Vec<String> {
    let table: BTreeMap<&str, &[&str]> = TABLE.iter().copied().collect();
    let mut breaches = Vec::new();
    for Edge { from, to, .. } in edges.iter().filter(|edge| !edge.tests_only) {
        let allowed = table.get(from.as_str()).copied().unwrap_or_default();
        if !allowed.contains(&to.as_str()) {
            breaches.push(format!("{from} must not depend on {to}"));
        }
    }
    for (from, to) in SEPARATE_SIDES {
        if let Some(path) = path(edges, from, to) {
            let path = path.join(" -> ");
            breaches.push(format!("{from} must never see {to}, not even in tests: {path}"));
        }
    }
    breaches
}

/// How `from`, its tests included, comes to see `to`.
fn path<'a>(edges: &'a [Edge], from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::from([from]);
    let mut paths = vec![vec![from]];
    while let Some(path) = paths.pop() {
        let last = path[path.len() - 1];
        if last == to {
            return Some(path);
        }
        // What a dependency's own tests use does not come along.
        let next =
            edges.iter().filter(|edge| edge.from == last && (last == from || !edge.tests_only));
        for edge in next {
            if seen.insert(&edge.to) {
                let mut longer = path.clone();
                longer.push(&edge.to);
                paths.push(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod unit {
    use super::*;

    fn edge(from: &str, to: &str) -> Edge {
        Edge { from: from.into(), to: to.into(), tests_only: false, has_version: true }
    }

    fn tests_only(from: &str, to: &str) -> Edge {
        Edge { tests_only: true, ..edge(from, to) }
    }

    #[test]
    fn every_edge_of_the_table_and_no_other_is_allowed() {
        for (from, allowed) in TABLE {
            for (to, _) in TABLE {
                let found = against_table(&[edge(from, to)]);
                let named =
                    found.iter().any(|line| *line == format!("{from} must not depend on {to}"));
                assert_eq!(named, !allowed.contains(to), "{from} -> {to}: {found:?}");
                assert_eq!(found.is_empty(), allowed.contains(to), "{from} -> {to}: {found:?}");
            }
        }
    }

    #[test]
    fn the_table_has_no_cycle_and_names_only_its_own() {
        let mut below = BTreeSet::new();
        for (name, allowed) in TABLE {
            for to in *allowed {
                assert!(below.contains(to), "{name} -> {to} points upwards");
            }
            below.insert(*name);
        }
    }

    #[test]
    fn tests_may_look_up_but_the_two_sides_never_meet() {
        assert_eq!(against_table(&[tests_only("swath-arch", "swath-frame")]), [""; 0]);
        assert_eq!(
            against_table(&[tests_only("swath-vm", "swath-hw")]),
            ["swath-vm must never see swath-hw, not even in tests: swath-vm -> swath-hw"]
        );
        let edges = [tests_only("swath-hw", "swath-lab"), edge("swath-lab", "swath-vm")];
        assert_eq!(
            against_table(&edges),
            [
                "swath-hw must never see swath-vm, not even in tests: swath-hw -> swath-lab -> swath-vm"
            ]
        );
        // The tests of a dependency are not built along.
        let edges = [edge("swath-vm", "swath-frame"), tests_only("swath-frame", "swath-hw")];
        assert_eq!(against_table(&edges), [""; 0]);
    }

    #[test]
    fn an_unknown_crate_may_depend_on_none() {
        assert_eq!(
            against_table(&[edge("swath-new", "swath-arch")]),
            ["swath-new must not depend on swath-arch"]
        );
    }
}
