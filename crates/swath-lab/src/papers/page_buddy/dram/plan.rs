//! The memory's choices in a plan: the part, how many of it, and how it is scheduled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_hw::dram::config::{DramConfig, DramConfigError};
use swath_hw::dram::mapping::{AddressMapping, AddressMappingError};
use swath_hw::dram::scheduling::{DrainRule, RefreshMode, Scheduling, WritePolicy};
use swath_hw::{Currents, TRANSACTION_BYTES};

use crate::papers::page_buddy::design::plan::FigureName;
use crate::papers::page_buddy::dram::part::{DataSheet, PartFault, PartName};
use crate::papers::page_buddy::dram::policy::write_rule;
use crate::study::bounds::Bounded;
use crate::study::claim::Conditions;
use crate::study::plan::Refused;
use crate::study::run::StudyError;

/// The banks that are refreshed at once, as a plan writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefreshName {
    /// All banks of a rank.
    #[default]
    AllBank,
    /// One set of them after the other, for parts that can.
    SameBank,
}

/// The memory: what Table 3 says of it and what it leaves open. What a plan does not say is as in that
/// table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DramPlan {
    /// The part: one that comes with the program, or a file.
    pub part: PartName,
    /// Channels, a power of two.
    pub channels: Bounded<1, 64>,
    /// Ranks on each channel, a power of two.
    pub ranks: Bounded<1, 64>,
    /// The banks that are refreshed at once.
    pub refresh: RefreshName,
    /// Bytes after which the channels take turns in the mapping *Row, Bank, Column, Channel,
    /// Column*, of which Table 3 does not give the positions: a power of two.
    pub interleave_bytes: Bounded<64, 8192>,
    /// Places in a channel's queue; in that of the reads, if writes have their own.
    pub queue_entries: Bounded<1, 4096>,
    /// True for bank hits first: a row stays open while a request for it waits.
    pub hits_first: bool,
    /// Column commands that may pass the oldest request.
    pub bypasses_max: Bounded<0, 1_000_000>,
    /// Places in a queue of writes; 0 if they share that of the reads.
    pub write_entries: Bounded<0, 4096>,
    /// Writes waiting that begin a drain.
    pub write_high: Bounded<1, 4096>,
    /// Writes waiting that end one; fewer than `write_high`.
    pub write_low: Bounded<0, 4095>,
    /// The name of a rule that another crate added, in place of `write_high` and `write_low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_rule: Option<FigureName>,
}

impl Default for DramPlan {
    /// The memory of [`DramConfig::paper`].
    fn default() -> Self {
        Self {
            part: PartName::default(),
            channels: const { Bounded::new(4).unwrap() },
            ranks: const { Bounded::new(1).unwrap() },
            refresh: RefreshName::AllBank,
            interleave_bytes: const { Bounded::new(64).unwrap() },
            queue_entries: const { Bounded::new(16).unwrap() },
            hits_first: true,
            bypasses_max: const { Bounded::new(64).unwrap() },
            write_entries: const { Bounded::new(16).unwrap() },
            write_high: const { Bounded::new(14).unwrap() },
            write_low: const { Bounded::new(3).unwrap() },
            write_rule: None,
        }
    }
}

/// A memory, ready to be built.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TimedMemory {
    /// Its configuration.
    pub(crate) config: DramConfig,
    /// The currents of its chips, where they are known.
    pub(crate) currents: Option<Currents>,
}

impl DramPlan {
    /// Refuses a memory that cannot be built.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self) -> Result<(), Refused> {
        self.memory().map(drop)
    }

    /// Returns the memory.
    ///
    /// # Errors
    /// [`Refused`]: never for a plan that was read, unless a part's file has changed.
    pub(crate) fn memory(&self) -> Result<TimedMemory, Refused> {
        let refused = |key: &str, why: String| Refused { key: format!("dram.{key}"), why };
        let fault = |fault: PartFault| refused("part", fault.to_string());
        let DataSheet { part, currents } = self.part.data_sheet().map_err(fault)?;
        let burst = u64::from(part.burst_bytes());
        if burst != TRANSACTION_BYTES {
            let why = format!("bursts of {burst} bytes; the system's are of {TRANSACTION_BYTES}");
            return Err(refused("part", why));
        }
        let (channels, ranks) = (self.channels.small(), self.ranks.small());
        for (key, count) in [("channels", channels), ("ranks", ranks)] {
            if !count.is_power_of_two() {
                return Err(refused(key, format!("{count} is not a power of two")));
            }
        }
        let interleave = self.interleave_bytes.get();
        let row = part.row_bytes();
        let mapping = AddressMapping::interleaved(&part, channels, ranks, interleave);
        let mapping = mapping.map_err(|error| match error {
            AddressMappingError::Interleave { .. } => {
                let why =
                    format!("{interleave} is not a power of two from {burst} to {row}, a row");
                refused("interleave_bytes", why)
            }
            error => refused("channels", error.to_string()),
        })?;
        let rule = self.write_rule.map(|name| write_rule(name.get())).transpose();
        let rule = rule.map_err(|why| refused("write_rule", why))?;
        if rule.is_some() && self.write_entries.get() == 0 {
            return Err(refused("write_rule", "writes have no places of their own".to_owned()));
        }
        let scheduling = self.scheduling(rule);
        let config = DramConfig { part, channels, ranks, mapping, scheduling };
        config.validate().map_err(|error| {
            let key = match error {
                DramConfigError::Part(_) => "part",
                DramConfigError::Mapping(_) => "interleave_bytes",
                DramConfigError::Count { field, .. } => field,
                DramConfigError::Refresh { .. } => "refresh",
                DramConfigError::Scheduling(_) => {
                    let (low, high) = (self.write_low, self.write_high);
                    let entries = self.write_entries;
                    let why = format!("of {entries} places, a drain from {high} to {low}");
                    return refused("write_high", why);
                }
            };
            refused(key, error.to_string())
        })?;
        Ok(TimedMemory { config, currents })
    }

    /// Returns the memory of a study.
    ///
    /// # Errors
    /// [`StudyError::Machine`], if a part's file has changed since the plan was read.
    pub(crate) fn memory_of(&self, study: &str) -> Result<TimedMemory, StudyError> {
        self.memory().map_err(|Refused { key, why }| StudyError::Machine {
            study: study.to_owned(),
            what: format!("{key}: {why}"),
        })
    }

    /// How each channel is scheduled.
    fn scheduling(&self, rule: Option<DrainRule>) -> Scheduling {
        Scheduling {
            entries: self.queue_entries.small(),
            hits_first: self.hits_first,
            bypasses_max: self.bypasses_max.small(),
            writes: match (self.write_entries.small(), rule) {
                (0, _) => WritePolicy::Unified,
                (entries, Some(rule)) => WritePolicy::Own { entries, rule },
                (entries, None) => WritePolicy::Watermark {
                    entries,
                    high: self.write_high.small(),
                    low: self.write_low.small(),
                },
            },
            refresh: match self.refresh {
                RefreshName::AllBank => RefreshMode::AllBank,
                RefreshName::SameBank => RefreshMode::SameBank,
            },
        }
    }

    /// The memory of Table 3 as conditions of the paper's claims.
    pub(crate) fn conditions(&self, conditions: Conditions) -> Conditions {
        let name = self.part.as_str();
        conditions
            .same("memory", PartName::default().as_str(), name)
            .same("channels of memory", 4, self.channels.get())
            .same("ranks of memory", 1, self.ranks.get())
            .same("requests in the memory's queue", 16, self.queue_entries.get())
            .met(
                self.write_rule.is_none(),
                "a memory that serves writes by a rule of another crate's",
            )
            .met(self.hits_first, "a memory that does not serve bank hits first")
    }

    /// The memory in words, for a report.
    pub fn describe(&self) -> String {
        let writes = match self.write_entries.get() {
            0 => "writes wait among the reads".to_owned(),
            places => format!(
                "writes wait in {places} places of their own, drained from {} to {}",
                self.write_high, self.write_low
            ),
        };
        let first = if self.hits_first { "bank hits first" } else { "the oldest request first" };
        let (part, channels) = (self.part.as_str(), self.channels);
        let ranks = if self.ranks.get() == 1 { "" } else { " of several ranks" };
        let refresh = match self.refresh {
            RefreshName::AllBank => "ranks",
            RefreshName::SameBank => "sets of banks",
        };
        format!(
            "The memory: {part}, {channels} channels{ranks}, refreshed by {refresh}; they take turns every {} \
             bytes; queues of {} requests, {first}, up to {} column commands past the oldest; {writes}.",
            self.interleave_bytes, self.queue_entries, self.bypasses_max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_without_a_memory_has_the_papers() {
        let paper = DramConfig::paper();
        let memory = DramPlan::default().memory().unwrap();
        assert_eq!((memory.config, memory.currents), (paper, Some(Currents::DDR3_1066)));
        let plan: DramPlan = toml::from_str("interleave_bytes = 256\nwrite_entries = 0").unwrap();
        let config = plan.memory().unwrap().config;
        assert_eq!(config.scheduling.writes, WritePolicy::Unified);
        let channel =
            |addr| config.mapping.locate(swath_arch::PhysAddr::new(addr)).unwrap().channel;
        assert_eq!([0, 255, 256, 1024].map(channel), [0, 0, 1, 0]);
    }

    #[test]
    fn every_part_makes_a_memory() {
        for part in
            ["ddr3-800", "ddr3-1600", "ddr4-3200", "ddr5-4800", "lpddr4-3200", "lpddr5-6400"]
        {
            let text = format!("part = {part:?}\nchannels = 2");
            let plan: DramPlan = toml::from_str(&text).unwrap();
            let config = plan.memory().unwrap().config;
            assert_eq!((config.channels, config.part.burst_bytes()), (2, 64), "{part}");
            let same_bank: DramPlan =
                toml::from_str(&format!("{text}\nrefresh = \"same-bank\"")).unwrap();
            let refused = same_bank.memory().err().map(|refused| refused.key);
            let can = part.ends_with("ddr5-4800") || part.ends_with("lpddr5-6400");
            assert_eq!(refused, (!can).then(|| "dram.refresh".to_owned()), "{part}");
        }
    }
}
