//! Plans: what a study is told, as TOML.
//!
//! A plan is read strictly. A key that no study knows, a value of the wrong
//! type and an impossible machine are errors that name the key; TOML's own
//! errors name line and column.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::papers::clmalloc::plan::{
    AvailabilityPlan, LargePlan, LatencyPlan, OrderPlan, StructuresPlan,
};
use crate::papers::real_time::plan::RtPlan;
use crate::papers::superpages::plan::SuperpagesPlan;
use crate::study::old::check::validate;

/// A plan that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not a plan: TOML's message names line, column and key.
    #[error("plan {plan}: {message}")]
    Parse {
        /// The plan's name or file.
        plan: String,
        /// What is wrong, and where.
        message: String,
    },
    /// A key has a value that no study can run with.
    #[error("plan {plan}: {key}: {why}")]
    Value {
        /// The plan's name or file.
        plan: String,
        /// The key, with its tables: `machine.tlb_entries`.
        key: String,
        /// Why not.
        why: String,
    },
    /// Free lists that no allocator can have.
    #[error("granularity {granularity}, top order {top_order}: {why}")]
    Orders {
        /// The distance between adjacent orders.
        granularity: u8,
        /// The highest order.
        top_order: u8,
        /// Why not.
        why: String,
    },
}

/// What every plan begins with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The study's name, which is also its directory in the report.
    pub study: String,
    /// Which code runs it.
    pub kind: Kind,
    /// The study's title in words.
    pub title: String,
    /// The file name of the paper.
    pub paper: String,
    /// The paper as a reader would cite it.
    pub reference: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// What the study is for, as an opening to its finding.
    pub purpose: String,
}

/// Which code runs a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Superpages off and on, in simulated time.
    Superpages,
    /// What allocations and releases of a heap over regions cost.
    RtRuntimes,
    /// How many pages such a heap has mapped.
    RtFootprint,
    /// Recorded programs on it.
    RtPrograms,
    /// Which requests for contiguous memory are served.
    ClAvailability,
    /// The same requests in different orders.
    ClOrder,
    /// What such requests cost.
    ClLatency,
    /// Large requests of programs.
    ClLarge,
    /// Frequent requests of programs.
    ClStructures,
}

impl Kind {
    /// Whether the study runs on a real machine's memory if one is given.
    pub fn uses_memory(self) -> bool {
        !matches!(
            self,
            Self::Superpages
                | Self::RtRuntimes
                | Self::RtFootprint
                | Self::RtPrograms
                | Self::ClAvailability
                | Self::ClOrder
                | Self::ClLatency
                | Self::ClLarge
                | Self::ClStructures
        )
    }

    /// Whether the study can measure the machine that runs it.
    pub fn measures_machine(self) -> bool {
        matches!(self, Self::Superpages | Self::RtRuntimes)
    }

    /// Returns true if the study runs on a real program's accesses if they are given.
    pub const fn uses_accesses(self) -> bool {
        false
    }
}

/// A plan of any kind.
#[derive(Clone, PartialEq, Debug)]
pub enum Plan {
    /// See [`Kind::Superpages`].
    Superpages(SuperpagesPlan),
    /// The studies of heaps over regions, by their kind.
    Rt(RtPlan),
    /// See [`Kind::ClAvailability`].
    ClAvailability(AvailabilityPlan),
    /// See [`Kind::ClOrder`].
    ClOrder(OrderPlan),
    /// See [`Kind::ClLatency`].
    ClLatency(LatencyPlan),
    /// See [`Kind::ClLarge`].
    ClLarge(LargePlan),
    /// See [`Kind::ClStructures`].
    ClStructures(StructuresPlan),
}

impl Plan {
    /// Reads a plan. `name` is said in errors.
    ///
    /// # Errors
    /// [`PlanError`], which names the key.
    pub fn parse(name: &str, text: &str) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        struct Head {
            about: HeadAbout,
        }
        #[derive(Deserialize)]
        struct HeadAbout {
            kind: Kind,
        }
        let head: Head = toml_from(name, text)?;
        let plan = match head.about.kind {
            Kind::Superpages => Self::Superpages(toml_from(name, text)?),
            Kind::RtRuntimes | Kind::RtFootprint | Kind::RtPrograms => {
                Self::Rt(toml_from(name, text)?)
            }
            Kind::ClAvailability => Self::ClAvailability(toml_from(name, text)?),
            Kind::ClOrder => Self::ClOrder(toml_from(name, text)?),
            Kind::ClLatency => Self::ClLatency(toml_from(name, text)?),
            Kind::ClLarge => Self::ClLarge(toml_from(name, text)?),
            Kind::ClStructures => Self::ClStructures(toml_from(name, text)?),
        };
        validate(&plan).map_err(|(key, why)| PlanError::Value {
            plan: name.to_owned(),
            key,
            why,
        })?;
        Ok(plan)
    }

    /// What every plan begins with.
    pub fn about(&self) -> &About {
        match self {
            Self::Superpages(plan) => &plan.about,
            Self::Rt(plan) => &plan.about,
            Self::ClAvailability(plan) => &plan.about,
            Self::ClOrder(plan) => &plan.about,
            Self::ClLatency(plan) => &plan.about,
            Self::ClLarge(plan) => &plan.about,
            Self::ClStructures(plan) => &plan.about,
        }
    }

    /// What every plan begins with, to change its seed.
    pub fn about_mut(&mut self) -> &mut About {
        match self {
            Self::Superpages(plan) => &mut plan.about,
            Self::Rt(plan) => &mut plan.about,
            Self::ClAvailability(plan) => &mut plan.about,
            Self::ClOrder(plan) => &mut plan.about,
            Self::ClLatency(plan) => &mut plan.about,
            Self::ClLarge(plan) => &mut plan.about,
            Self::ClStructures(plan) => &mut plan.about,
        }
    }
}

fn toml_from<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, PlanError> {
    toml::from_str(text).map_err(|error| PlanError::Parse {
        plan: name.to_owned(),
        message: error.to_string().trim_end().to_owned(),
    })
}
