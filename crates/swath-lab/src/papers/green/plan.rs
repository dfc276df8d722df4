//! The plans of the green memory manager's studies.

use serde::{Deserialize, Serialize};

use crate::papers::green::allocator::AllocatorName;
use crate::papers::green::machine::{DaemonPlan, MachineName};
use crate::source::load::LoadKind;
use crate::study::old::plan::About;

/// A load that a plan can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LoadName {
    /// 10% to 50% of memory in use.
    Light,
    /// 30% to 80%.
    Medium,
    /// 10% to 95%: a page cache that fills memory.
    Filled,
}

impl LoadName {
    /// The load.
    pub const fn kind(self) -> LoadKind {
        match self {
            Self::Light => LoadKind::Light,
            Self::Medium => LoadKind::Medium,
            Self::Filled => LoadKind::Filled,
        }
    }

    /// Its name in figures.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Medium => "medium",
            Self::Filled => "filled",
        }
    }
}

/// What is compared: an allocator, with or without migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// The allocator.
    pub allocator: AllocatorName,
    /// Whether banks are emptied by migration.
    #[serde(default)]
    pub migrate: bool,
}

impl Design {
    /// Its name in figures.
    pub fn title(self) -> String {
        let name = self.allocator.title();
        if self.migrate { format!("{name} + migration") } else { name.to_owned() }
    }
}

/// A load on a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GreenRun {
    /// The machine.
    pub machine: MachineName,
    /// The load.
    pub load: LoadName,
    /// Whether banks are interleaved two by two.
    #[serde(default)]
    pub interleaved: bool,
    /// The size of a bank: a power of two from 8 to 1024.
    #[serde(default = "bank_mib")]
    pub bank_mib: u64,
    /// Simulated minutes, the first of them boot.
    pub minutes: u64,
    /// The same in a quick run; 0 leaves the row out.
    pub minutes_quick: u64,
}

/// The paper's bank.
const fn bank_mib() -> u64 {
    256
}

impl GreenRun {
    /// Its name in figures.
    pub fn title(self) -> String {
        let ways = if self.interleaved { ", 2-way" } else { "" };
        let banks = match self.has_paper_banks() {
            true => String::new(),
            false => format!(", banks of {} MiB", self.bank_mib),
        };
        format!("{}, {}{ways}{banks}", self.machine.title(), self.load.title())
    }

    /// Whether its banks are as large as the paper's.
    pub fn has_paper_banks(self) -> bool {
        self.bank_mib == bank_mib()
    }

    /// Simulated minutes of this run.
    pub fn minutes(self, quick: bool) -> u64 {
        if quick { self.minutes_quick } else { self.minutes }
    }
}

/// Designs under loads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GreenPlan {
    /// Name, title, seed.
    pub about: About,
    /// What is compared.
    pub designs: Vec<Design>,
    /// Under which loads.
    pub runs: Vec<GreenRun>,
    /// The daemon of the designs with migration.
    pub daemon: DaemonPlan,
    /// Recordings that follow the load on the aged machine: files, or the names
    /// of those that come with the program.
    #[serde(default)]
    pub recordings: Vec<String>,
}

impl GreenPlan {
    /// The loads of this run.
    pub fn runs(&self, quick: bool) -> Vec<GreenRun> {
        self.runs.iter().copied().filter(|run| run.minutes(quick) > 0).collect()
    }

    /// The key and why its value cannot be run.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        let twice = |nth: usize| self.designs[..nth].contains(&self.designs[nth]);
        if self.designs.is_empty() {
            return Some(("designs", "none given".to_owned()));
        }
        if let Some(nth) = (0..self.designs.len()).find(|&nth| twice(nth)) {
            return Some(("designs", format!("{} stands twice", self.designs[nth].title())));
        }
        for quick in [false, true] {
            if self.runs(quick).is_empty() {
                let key = if quick { "runs.minutes_quick" } else { "runs.minutes" };
                return Some((key, "no row has any".to_owned()));
            }
        }
        for run in &self.runs {
            if !run.bank_mib.is_power_of_two() || !(8..=1024).contains(&run.bank_mib) {
                let what = format!("{} is no power of two from 8 to 1024", run.bank_mib);
                return Some(("runs.bank_mib", what));
            }
            for (key, minutes) in
                [("runs.minutes", run.minutes), ("runs.minutes_quick", run.minutes_quick)]
            {
                // The first minute is boot, and a row of looks needs several.
                if minutes != 0 && !(3..=60_000).contains(&minutes) {
                    return Some((key, format!("{minutes} is not 0 or between 3 and 60000")));
                }
            }
        }
        let daemon = &self.daemon;
        for (key, value, max) in [
            ("daemon.interval_ms", daemon.interval_ms, 3_600_000),
            ("daemon.budget_frames", daemon.budget_frames, 1 << 24),
        ] {
            if !(1..=max).contains(&value) {
                return Some((key, format!("{value} is not between 1 and {max}")));
            }
        }
        for (key, value, max) in [
            ("daemon.retry_ms", daemon.retry_ms, 3_600_000),
            ("daemon.occupied_permille_max", daemon.occupied_permille_max.into(), 1000),
            ("daemon.reserve_frames", daemon.reserve_frames, 1 << 23),
        ] {
            if value > max {
                return Some((key, format!("{value} is more than {max}")));
            }
        }
        None
    }
}
