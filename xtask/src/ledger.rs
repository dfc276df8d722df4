//! The ledger of fuzzing: a file of the project to which every campaign adds its executions and its
//! time, on whatever machine, so that many short ones make hours.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The file, from the workspace's root.
const FILE: &str = "fuzz/ledger.toml";

const HEAD: &str = "\
# Executions and time of fuzzing, summed over all campaigns; `cargo xtask fuzz` adds to it, `--ledger` shows
# it. `seconds` are the fuzzer's processor time, `clean_seconds` and `clean_executions` those since
# the last finding, or since code that the target attacks was found wrong by other means. `edges` is
# the widest coverage that a campaign ended with, in the program as it was then.

";

/// Seconds without a finding that each target is to have.
pub(crate) const GOAL_SECONDS: f64 = 3600.0;

/// The sums of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sums {
    pub(crate) executions: u64,
    pub(crate) seconds: f64,
    pub(crate) clean_executions: u64,
    pub(crate) clean_seconds: f64,
    pub(crate) findings: u64,
    pub(crate) edges: u64,
}

impl Sums {
    /// Adds a campaign's; one that ends with a finding has the clean time begin anew.
    pub(crate) fn add(&mut self, executions: u64, seconds: f64, edges: u64, found: bool) {
        self.executions += executions;
        self.seconds = tenths(self.seconds + seconds);
        self.edges = self.edges.max(edges);
        if found {
            (self.clean_executions, self.clean_seconds) = (0, 0.0);
            self.findings += 1;
        } else {
            self.clean_executions += executions;
            self.clean_seconds = tenths(self.clean_seconds + seconds);
        }
    }
}

fn tenths(seconds: f64) -> f64 {
    (10.0 * seconds).round() / 10.0
}

/// The sums of all targets, by name.
pub(crate) type Ledger = BTreeMap<String, Sums>;

/// Where the ledger is, and what keeps two campaigns from writing it at once.
pub(crate) struct Book {
    file: PathBuf,
    lock: PathBuf,
}

impl Book {
    /// `work` is the fuzzer's own folder, which is there.
    pub(crate) fn new(root: &Path, work: &Path) -> Self {
        Self { file: root.join(FILE), lock: work.join("ledger.lock") }
    }

    /// Reads the sums; a ledger that is not there is empty.
    pub(crate) fn read(&self) -> Result<Ledger> {
        if !self.file.exists() {
            return Ok(Ledger::new());
        }
        let text = fs::read_to_string(&self.file).with_context(|| FILE.to_owned())?;
        toml::from_str(&text).with_context(|| FILE.to_owned())
    }

    /// Reads, changes and writes it, alone and whole.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Ledger)) -> Result<()> {
        let lock = File::create(&self.lock).with_context(|| self.lock.display().to_string())?;
        lock.lock().context("the ledger's lock")?;
        let mut ledger = self.read()?;
        change(&mut ledger);
        let folder = self.file.parent().context("a folder")?;
        let next = tempfile::NamedTempFile::new_in(folder)?;
        fs::write(next.path(), format!("{HEAD}{}", toml::to_string(&ledger)?))?;
        next.persist(&self.file).with_context(|| FILE.to_owned())?;
        Ok(())
    }
}

/// Returns the ledger as a table, the target with the least time first, and what it comes to.
pub(crate) fn table(ledger: &Ledger, targets: &[&str]) -> String {
    let mut rows: Vec<(&str, Sums)> =
        targets.iter().map(|&name| (name, ledger.get(name).cloned().unwrap_or_default())).collect();
    rows.sort_by(|(_, one), (_, other)| one.clean_seconds.total_cmp(&other.clean_seconds));
    let mut text = String::from(
        "| target | clean seconds | clean executions | seconds | executions | edges | findings |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, sums) in &rows {
        let Sums { executions, seconds, clean_executions, clean_seconds, findings, edges } = sums;
        text += &format!(
            "| {name} | {clean_seconds:.0} | {clean_executions} | {seconds:.0} | {executions} | \
             {edges} | {findings} |\n"
        );
    }
    let done = rows.iter().filter(|(_, sums)| sums.clean_seconds >= GOAL_SECONDS).count();
    let clean: f64 = rows.iter().map(|(_, sums)| sums.clean_seconds.min(GOAL_SECONDS)).sum();
    let share = 100.0 * clean / (GOAL_SECONDS * rows.len().max(1) as f64);
    text += &format!(
        "{done} of {} targets have {GOAL_SECONDS:.0} s without a finding, {share:.1}% of the time \
         that all need\n",
        rows.len()
    );
    text
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn campaigns_add_up_and_a_finding_begins_anew() {
        let room = tempfile::tempdir().unwrap();
        fs::create_dir(room.path().join("fuzz")).unwrap();
        let book = Book::new(room.path(), room.path());
        assert_eq!(book.read().unwrap(), Ledger::new());
        for (executions, seconds, edges, found) in
            [(100, 3000.04, 7, false), (5, 1.0, 9, true), (30, 600.5, 8, false)]
        {
            let add = |sums: &mut Sums| sums.add(executions, seconds, edges, found);
            book.change(|ledger| add(ledger.entry("it".to_owned()).or_default())).unwrap();
        }
        let it = Sums {
            executions: 135,
            seconds: 3601.5,
            clean_executions: 30,
            clean_seconds: 600.5,
            findings: 1,
            edges: 9,
        };
        assert_eq!(book.read().unwrap()["it"], it);
        let table = table(&book.read().unwrap(), &["it", "other"]);
        let rows = "| other | 0 | 0 | 0 | 0 | 0 | 0 |\n| it | 600 | 30 | 3602 | 135 | 9 | 1 |\n";
        assert!(table.contains(rows), "{table}");
        assert!(table.ends_with(
            "0 of 2 targets have 3600 s without a finding, 8.3% of the time that all need\n"
        ));
    }

    #[test]
    fn what_is_no_ledger_is_refused_and_stays() {
        let room = tempfile::tempdir().unwrap();
        fs::create_dir(room.path().join("fuzz")).unwrap();
        let book = Book::new(room.path(), room.path());
        fs::write(room.path().join(FILE), "[it]\nexecutions = -1\n").unwrap();
        assert!(book.change(|ledger| ledger.clear()).is_err());
        assert_eq!(fs::read_to_string(room.path().join(FILE)).unwrap(), "[it]\nexecutions = -1\n");
    }
}
