//! DRAM parts by name, and those in data files: the tables of a data sheet as TOML.
//!
//! The keys are those of [`Part`], whose documentation says what each means; a constraint gives lists of
//! commands in place of one, and stands for all pairs. `examples/parts` has a whole file.

use std::borrow::Cow;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use swath_hw::dram::timing::{Command, Constraint, Scope};
use swath_hw::{
    Currents, DDR3_800, DDR3_1600, DDR4_3200, DDR5_4800, LPDDR4_3200, LPDDR5_6400, Part, PartError,
    SetRefresh,
};
use swath_trace::whole;

use crate::names::lasting;
use crate::study::bounds::Bounded;
use crate::study::plan::{PlanError, Refused, parse, value_error};

/// The parts that come with the program.
const PARTS: [(&str, Part, Option<Currents>); 6] = [
    ("ddr3-800", DDR3_800, Some(Currents::DDR3_1066)),
    ("ddr3-1600", DDR3_1600, None),
    ("ddr4-3200", DDR4_3200, Some(Currents::DDR4_3200)),
    ("ddr5-4800", DDR5_4800, None),
    ("lpddr4-3200", LPDDR4_3200, None),
    ("lpddr5-6400", LPDDR5_6400, None),
];

/// The longest file of a part.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The longest name in one.
const NAME_MAX: usize = 64;

/// A part by its name, or by the file that has its data sheet: `ddr4-3200`, `parts/mine.toml`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartName(&'static str);

impl Default for PartName {
    /// The part of Table 3.
    fn default() -> Self {
        Self("ddr3-800")
    }
}

impl Serialize for PartName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for PartName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(lasting(&String::deserialize(from)?)))
    }
}

impl JsonSchema for PartName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PartName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = PARTS.map(|(name, ..)| name);
        json_schema!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": "\\.toml$" }] })
    }
}

/// A part with the currents that its energy follows from, where they are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataSheet {
    /// The part.
    pub part: Part,
    /// Its currents.
    pub currents: Option<Currents>,
}

/// A part that there is not, or whose file is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PartFault(String);

impl PartName {
    /// The name, or the file's.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the part; one with a file is read anew.
    ///
    /// # Errors
    /// [`PartFault`], which names the file with key and line.
    pub fn data_sheet(self) -> Result<DataSheet, PartFault> {
        if let Some((_, part, currents)) = PARTS.into_iter().find(|(name, ..)| *name == self.0) {
            return Ok(DataSheet { part, currents });
        }
        let path = Path::new(self.0);
        if path.extension().is_none_or(|ending| ending != "toml") {
            let names = PARTS.map(|(name, ..)| name).join(", ");
            let why =
                format!("no part {:?}; there are {names}, and files that end in .toml", self.0);
            return Err(PartFault(why));
        }
        let text = whole::read_text(path, FILE_BYTES_MAX);
        read(self.0, &text.map_err(|error| PartFault(error.to_string()))?)
    }
}

/// Reads the text of a part's file.
///
/// # Errors
/// [`PartFault`].
fn read(file: &str, text: &str) -> Result<DataSheet, PartFault> {
    let fault = |error| match error {
        PlanError::Value { key, why, .. } => PartFault(format!("{file}: {key}: {why}")),
        PlanError::Parse { message, .. } => PartFault(format!("{file}: {message}")),
        error @ PlanError::Orders { .. } => PartFault(format!("{file}: {error}")),
    };
    let sheet: PartFile = parse(file, text).map_err(fault)?;
    let refused = |key: String, why| fault(value_error(file, text, Refused { key, why }));
    let lines = sheet.constraints.iter().enumerate();
    let names = lines.map(|(nth, line)| (format!("constraints.{nth}.name"), &line.name));
    for (key, name) in names.chain([("name".to_owned(), &sheet.name)]) {
        let fits = (1..=NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
        if !fits {
            return Err(refused(key, format!("{name:?} is no name of 1 to {NAME_MAX} bytes")));
        }
    }
    let constraints: Vec<String> = sheet.constraints.iter().map(|line| line.name.clone()).collect();
    let currents = sheet.currents.map(CurrentsFile::currents);
    let part = sheet.part();
    part.validate().map_err(|error| {
        let key = match error {
            // Of a constraint it has the name.
            PartError::Size { field, .. } => constraints
                .iter()
                .position(|name| name == field)
                .map_or(field.to_owned(), |nth| format!("constraints.{nth}.cycles")),
            PartError::Scope { .. } => "constraints".to_owned(),
            PartError::Refresh { .. } => "refresh_interval_cycles".to_owned(),
        };
        refused(key, error.to_string())
    })?;
    Ok(DataSheet { part, currents })
}

/// A part's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartFile {
    name: String,
    clock_period_ps: u32,
    #[serde(default = "one")]
    groups: u32,
    banks_per_group: u32,
    row_bits: u32,
    column_bits: u32,
    bus_bytes: u32,
    burst_transfers: u32,
    #[serde(default = "two")]
    transfers_per_cycle: u32,
    read_latency_cycles: u32,
    write_latency_cycles: u32,
    refresh_interval_cycles: u32,
    set_refresh: Option<SetRefreshFile>,
    #[serde(default)]
    four_activates_cycles: u32,
    #[serde(default)]
    bus_cycles: BusCyclesFile,
    constraints: Vec<ConstraintFile>,
    currents: Option<CurrentsFile>,
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

/// [`SetRefresh`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetRefreshFile {
    sets: u32,
    interval_cycles: u32,
}

/// Cycles for which each command occupies the command bus.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct BusCyclesFile {
    activate: u32,
    precharge: u32,
    precharge_all: u32,
    read: u32,
    write: u32,
    refresh: u32,
    refresh_set: u32,
}

impl Default for BusCyclesFile {
    fn default() -> Self {
        let (activate, precharge, precharge_all, read, write) = (1, 1, 1, 1, 1);
        Self { activate, precharge, precharge_all, read, write, refresh: 1, refresh_set: 1 }
    }
}

/// A line of the table: from each of some commands to each of some others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConstraintFile {
    name: String,
    from: Vec<CommandName>,
    to: Vec<CommandName>,
    scope: ScopeName,
    cycles: u32,
}

/// A [`Command`], as a file writes it.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CommandName {
    Activate,
    Precharge,
    PrechargeAll,
    Read,
    Write,
    Refresh,
    RefreshSet,
}

/// A [`Scope`], as a file writes it.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ScopeName {
    Bank,
    Group,
    Set,
    Rank,
    OtherRanks,
}

/// [`Currents`].
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurrentsFile {
    vdd_mv: Milli,
    idd0_ma: Milli,
    idd2n_ma: Milli,
    idd3n_ma: Milli,
    idd4r_ma: Milli,
    idd4w_ma: Milli,
    idd5b_ma: Milli,
    chips_per_rank: Bounded<1, 1024>,
}

/// Millivolts or milliamperes of a chip.
type Milli = Bounded<0, 1_000_000>;

impl CurrentsFile {
    fn currents(self) -> Currents {
        Currents {
            vdd_mv: self.vdd_mv.small(),
            idd0_ma: self.idd0_ma.small(),
            idd2n_ma: self.idd2n_ma.small(),
            idd3n_ma: self.idd3n_ma.small(),
            idd4r_ma: self.idd4r_ma.small(),
            idd4w_ma: self.idd4w_ma.small(),
            idd5b_ma: self.idd5b_ma.small(),
            chips_per_rank: self.chips_per_rank.small(),
        }
    }
}

impl PartFile {
    fn part(self) -> Part {
        let command = |name| match name {
            CommandName::Activate => Command::Activate,
            CommandName::Precharge => Command::Precharge,
            CommandName::PrechargeAll => Command::PrechargeAll,
            CommandName::Read => Command::Read,
            CommandName::Write => Command::Write,
            CommandName::Refresh => Command::Refresh,
            CommandName::RefreshSet => Command::RefreshSet,
        };
        let mut constraints = Vec::new();
        for line in &self.constraints {
            let scope = match line.scope {
                ScopeName::Bank => Scope::Bank,
                ScopeName::Group => Scope::Group,
                ScopeName::Set => Scope::Set,
                ScopeName::Rank => Scope::Rank,
                ScopeName::OtherRanks => Scope::OtherRanks,
            };
            let (name, cycles) = (lasting(&line.name), line.cycles);
            for (&from, &to) in
                line.from.iter().flat_map(|from| line.to.iter().map(move |to| (from, to)))
            {
                let (from, to) = (command(from), command(to));
                constraints.push(Constraint { name, from, to, scope, cycles });
            }
        }
        let bus = self.bus_cycles;
        Part {
            name: lasting(&self.name),
            clock_period_ps: self.clock_period_ps,
            groups: self.groups,
            banks_per_group: self.banks_per_group,
            row_bits: self.row_bits,
            column_bits: self.column_bits,
            bus_bytes: self.bus_bytes,
            burst_transfers: self.burst_transfers,
            transfers_per_cycle: self.transfers_per_cycle,
            read_latency_cycles: self.read_latency_cycles,
            write_latency_cycles: self.write_latency_cycles,
            refresh_interval_cycles: self.refresh_interval_cycles,
            set_refresh: self.set_refresh.map(|SetRefreshFile { sets, interval_cycles }| {
                SetRefresh { sets, interval_cycles }
            }),
            four_activates_cycles: self.four_activates_cycles,
            // In the order of the commands' numbers.
            bus_cycles: [
                bus.activate,
                bus.precharge,
                bus.precharge_all,
                bus.read,
                bus.write,
                bus.refresh,
                bus.refresh_set,
            ],
            constraints: Cow::Owned(constraints),
        }
    }
}
