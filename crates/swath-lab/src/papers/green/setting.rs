//! The plans that the studies of machines under loads share: loads, designs,
//! the migration daemon, and the paper's machine as conditions.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::config::{
    DaemonConfig, Interleaved, MachineName, SUB_ARRAY_GROUPS,
};
use crate::papers::green::pages::load::{LoadKind, PageLoad};
use crate::study::bounds::{Bounded, Distinct, Forms, Repeats};
use crate::study::plan::{Head, Refused, require};

/// A load that a plan can name.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
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

/// An allocator, with or without migration: `"adaptive"`, `"adaptive + migration"`,
/// `"adaptive + eager migration"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Design {
    /// The allocator.
    pub allocator: AllocatorName,
    /// The way in which banks are emptied.
    pub migration: Migration,
}

/// The ways in which banks are emptied by migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Migration {
    /// They are not.
    None,
    /// As soon as there is room for what they hold.
    Eager,
    /// With the daemon's hysteresis: none for some time after one was opened.
    Settled,
}

impl Migration {
    const ALL: [Self; 3] = [Self::None, Self::Eager, Self::Settled];

    /// The end of a design's name in plans and figures.
    const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Eager => " + eager migration",
            Self::Settled => " + migration",
        }
    }
}

impl Design {
    /// The allocator without migration.
    pub const fn plain(allocator: AllocatorName) -> Self {
        Self { allocator, migration: Migration::None }
    }

    /// The allocator with migration.
    pub const fn migrating(allocator: AllocatorName) -> Self {
        Self { allocator, migration: Migration::Settled }
    }

    /// The allocator with migration, without hysteresis.
    pub const fn eager(allocator: AllocatorName) -> Self {
        Self { allocator, migration: Migration::Eager }
    }

    /// Every design.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |allocator| Migration::ALL.map(|migration| Self { allocator, migration });
        AllocatorName::ALL.into_iter().flat_map(of)
    }

    /// Returns true if banks are emptied by migration.
    pub fn migrates(self) -> bool {
        self.migration != Migration::None
    }

    /// Its name in figures.
    pub fn title(self) -> String {
        format!("{}{}", self.allocator.title(), self.migration.suffix())
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.allocator.key(), self.migration.suffix())
    }
}

impl FromStr for Design {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::all().map(|design| design.to_string()).collect::<Vec<_>>().join(", ");
        let found = Self::all().find(|design| design.to_string() == text);
        found.ok_or_else(|| format!("no design {text:?}; there are {}", known()))
    }
}

impl TryFrom<String> for Design {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Design> for String {
    fn from(design: Design) -> Self {
        design.to_string()
    }
}

impl JsonSchema for Design {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Design".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<String> = Self::all().map(|design| design.to_string()).collect();
        schemars::json_schema!({ "type": "string", "enum": names })
    }
}

/// Simulated minutes of a run, the first of them boot; 0 leaves it out.
pub type Minutes = Bounded<0, 60_000>;

/// A load on a machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadRun {
    /// The machine.
    pub machine: MachineName,
    /// The load.
    pub load: LoadName,
    /// The banks that are interleaved.
    #[serde(default)]
    pub interleaving: Interleaved,
    /// The size of a bank: a power of two; the paper's where all are interleaved, whose groups of
    /// sub-arrays have their own.
    #[serde(default = "bank_mib")]
    pub bank_mib: Bounded<8, 1024>,
    /// MiB that the system has in use beside the load's applications.
    #[serde(default = "system_mib")]
    pub system_mib: Bounded<0, 65_536>,
    /// Simulated minutes, the first of them boot; 0 leaves the run out.
    pub minutes: Forms<Minutes>,
}

/// The paper's bank.
const fn bank_mib() -> Bounded<8, 1024> {
    const { Bounded::new(PAPER_BANK_MIB).unwrap() }
}

/// A footprint that is all that is in use.
const fn system_mib() -> Bounded<0, 65_536> {
    const { Bounded::new(0).unwrap() }
}

/// MiB of the paper's bank (section IV).
pub const PAPER_BANK_MIB: u64 = 256;

impl LoadRun {
    /// Its name in figures.
    pub fn title(&self) -> String {
        let ways = ways(self.interleaving);
        let banks = match self.bank_mib.get() {
            PAPER_BANK_MIB => String::new(),
            mib => format!(", banks of {mib} MiB"),
        };
        format!("{}, {}{ways}{banks}", self.machine.title(), self.load.title())
    }

    /// Bytes of what is powered as one.
    pub fn unit_bytes(&self) -> u64 {
        let bank = self.bank_mib.get() << 20;
        match self.interleaving {
            Interleaved::None => bank,
            Interleaved::TwoWay => 2 * bank,
            Interleaved::All => (self.machine.load().frames << 12) / SUB_ARRAY_GROUPS,
        }
    }

    /// Refuses banks that are no power of two, or a size of banks that makes no difference.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, key: &str) -> Result<(), Refused> {
        let mib = self.bank_mib.get();
        require(mib.is_power_of_two(), &format!("{key}.bank_mib"), || {
            format!("{mib} is not a power of two")
        })?;
        let load = PageLoad::with_system(self.machine.load(), self.load.kind(), 0, self.system());
        require(load.is_some(), &format!("{key}.system_mib"), || {
            format!("{} leaves the load less than a tenth of memory", self.system_mib)
        })?;
        let is_used = self.interleaving != Interleaved::All || mib == PAPER_BANK_MIB;
        require(is_used, &format!("{key}.bank_mib"), || {
            format!("{mib} says nothing where all banks are interleaved")
        })
    }

    /// Frames that the system has in use.
    pub fn system(&self) -> u64 {
        self.system_mib.get() << 8
    }

    /// Simulated minutes of this form.
    pub fn minutes(&self, quick: bool) -> u64 {
        self.minutes.of(quick).get()
    }
}

/// The end of a load's name in figures.
pub(crate) const fn ways(interleaving: Interleaved) -> &'static str {
    match interleaving {
        Interleaved::None => "",
        Interleaved::TwoWay => ", 2-way",
        Interleaved::All => ", all interleaved",
    }
}

/// The migration daemon of each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaemonPlan {
    /// Milliseconds from the end of one bank to the search for the next.
    pub interval_ms: Bounded<1, 3_600_000>,
    /// Milliseconds for which a bank that failed is left alone.
    pub retry_ms: Bounded<0, 3_600_000>,
    /// The most of a bank that may be in use, in thousandths.
    pub occupied_permille_max: Bounded<0, 1000>,
    /// Free frames that must remain where frames are moved to.
    pub reserve_frames: Bounded<0, { 1 << 23 }>,
    /// Frames moved in 100 ms; twice as many where banks are interleaved.
    pub budget_frames: Bounded<1, { 1 << 24 }>,
    /// Milliseconds after a bank was opened in which none is begun with, but by designs that are eager.
    pub settle_ms: Bounded<1, 3_600_000>,
}

impl DaemonPlan {
    /// The daemon's settings for a design, if it has one.
    pub fn config(&self, migration: Migration) -> Option<DaemonConfig> {
        let settle_ms = match migration {
            Migration::None => return None,
            Migration::Eager => 0,
            Migration::Settled => self.settle_ms.get(),
        };
        Some(DaemonConfig {
            interval_ms: self.interval_ms.get(),
            retry_ms: self.retry_ms.get(),
            occupied_permille_max: self.occupied_permille_max.small(),
            reserve_frames: self.reserve_frames.get(),
            budget_frames: self.budget_frames.get(),
            settle_ms,
        })
    }
}

/// Designs under loads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GreenPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of loads with other random numbers on which each point is measured.
    pub repeats: Forms<Repeats>,
    /// The designs that are compared.
    pub designs: Forms<Distinct<Design>>,
    /// The loads.
    pub runs: Vec<LoadRun>,
    /// The daemon of the designs with migration.
    pub daemon: DaemonPlan,
}

crate::plan!(GreenPlan, GreenPlan::check);

impl GreenPlan {
    /// The loads of this form.
    pub fn runs(&self, quick: bool) -> Vec<LoadRun> {
        self.runs.iter().copied().filter(|run| run.minutes(quick) > 0).collect()
    }

    /// Refuses a form without loads, loads that stand twice, banks that are no
    /// power of two, and runs of boot alone.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        for form in [false, true] {
            let name = if form { "quick" } else { "full" };
            require(!self.runs(form).is_empty(), "runs", || {
                format!("none has minutes in the {name} form")
            })?;
        }
        for (nth, run) in self.runs.iter().enumerate() {
            run.check(&format!("runs.{nth}"))?;
            for minutes in [run.minutes.full.get(), run.minutes.quick.get()] {
                // The first minute is boot, and a line of looks needs several.
                require(minutes == 0 || minutes >= 3, &format!("runs.{nth}.minutes"), || {
                    format!("{minutes} is neither 0 nor at least 3")
                })?;
            }
            let twice = self.runs[..nth].iter().any(|other| other.title() == run.title());
            require(!twice, &format!("runs.{nth}"), || format!("{} stands twice", run.title()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_are_read_by_the_names_that_they_are_written_with() {
        assert_eq!(Design::all().count(), 3 * AllocatorName::ALL.len());
        for design in Design::all() {
            assert_eq!(design.to_string().parse(), Ok(design));
        }
        let packed = Design::migrating(AllocatorName::AdaptivePacked);
        assert_eq!(packed.to_string(), "adaptive-packed + migration");
        let error = "slab".parse::<Design>().unwrap_err();
        assert!(error.contains("linux-movable"), "{error}");
    }
}
