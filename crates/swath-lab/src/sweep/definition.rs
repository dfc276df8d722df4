//! The definition of a sweep, as TOML:
//!
//! ```toml
//! study = "pbs-tlb"      # or plan = "FILE", or the plan as a table
//! form = "quick"         # or "full", which it is if not said
//!
//! [keys]
//! "machine.tlb_entries" = [16, 32, 64]
//! "about.seed" = { from = 1, to = 20 }
//! ```
//!
//! Points are all combinations of values, the last key's changing fastest. A point whose plan is
//! refused refuses the sweep, unless `refused = "skip"` says that the table shall name it instead.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use swath_trace::machine::UnknownFrames;
use swath_trace::whole::{self, WholeError};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::source::real::{InputError, Machine, RealInput};
use crate::study::kind::ReadyStudy;
use crate::study::plan::{PlanError, Refused, parse, value_error};
use crate::study::registry;
use crate::sweep::key::{Key, POINTS_MAX, is_range, set};
use crate::table::column::{Cell, Schema, Type};
use crate::table::result;

/// The longest definition, and the longest plan.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reasons why a sweep cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The definition, or a plan of a point, is refused: key and line.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A file cannot be read.
    #[error(transparent)]
    Whole(#[from] WholeError),
    /// Real input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// The fate of a point whose plan is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnRefusal {
    /// No point is run.
    #[default]
    Error,
    /// The table says why it was not run.
    Skip,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    #[default]
    Full,
    Quick,
}

/// A plan, by its file or as a table.
#[derive(Deserialize)]
#[serde(untagged)]
enum PlanOf {
    File(PathBuf),
    Table(Table),
}

/// The file's fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    study: Option<String>,
    plan: Option<PlanOf>,
    #[serde(default)]
    form: Form,
    #[serde(default)]
    refused: OnRefusal,
    memory: Option<PathBuf>,
    #[serde(default)]
    unknown_free: bool,
    accesses: Option<PathBuf>,
    keys: Table,
}

/// A sweep: a plan, and the values of its keys.
#[derive(Clone, Debug)]
pub struct Sweep {
    name: String,
    text: String,
    /// The study's name.
    pub study: String,
    plan: Table,
    /// Keys, the last of which changes fastest.
    pub keys: Vec<Key>,
    /// True for the quick form of the plan.
    pub quick: bool,
    /// The fate of a point whose plan is refused.
    pub refused: OnRefusal,
    /// Real input in place of the plan's.
    pub real: RealInput,
}

impl Sweep {
    /// Reads the definition in a file. Files that it names are found from the folder that it is in.
    ///
    /// # Errors
    /// [`SweepError`], which names the key and the line.
    pub fn load(path: &Path) -> Result<Self, SweepError> {
        let text = whole::read_text(path, FILE_BYTES_MAX)?;
        Self::read(&path.display().to_string(), &text, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a definition; files that it names are found from `folder`.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn read(name: &str, text: &str, folder: &Path) -> Result<Self, SweepError> {
        let fields: Fields = parse(name, text)?;
        let refuse = |key: &str, why: String| {
            SweepError::Plan(value_error(name, text, Refused { key: key.to_owned(), why }))
        };
        let (plan_name, plan_text) = match (&fields.study, &fields.plan) {
            (Some(study), None) => {
                let plan = registry::text_of(study);
                let plan = plan.ok_or_else(|| refuse("study", format!("no study {study:?}")))?;
                (study.clone(), plan.to_owned())
            }
            (None, Some(PlanOf::Table(plan))) => {
                let text = toml::to_string(plan).map_err(|error| refuse("plan", error.to_string()));
                (name.to_owned(), text?)
            }
            (None, Some(PlanOf::File(plan))) => {
                let path = folder.join(plan);
                (path.display().to_string(), whole::read_text(&path, FILE_BYTES_MAX)?)
            }
            _ => return Err(refuse("study", "one of `study` and `plan` is wanted".to_owned())),
        };
        let base = registry::parse(&plan_name, &plan_text)?;
        let plan = parse(&plan_name, &plan_text)?;
        let uses = base.uses();
        for (key, given, used) in [
            ("memory", fields.memory.is_some(), uses.memory),
            ("accesses", fields.accesses.is_some(), uses.accesses),
        ] {
            if given && !used {
                return Err(refuse(key, "the study does not use it".to_owned()));
            }
        }
        let memory = match &fields.memory {
            Some(file) => {
                let unknown =
                    if fields.unknown_free { UnknownFrames::Free } else { UnknownFrames::Used };
                Some(Arc::new(Machine::load(Some(&folder.join(file)), unknown)?))
            }
            None => None,
        };
        let accesses = fields.accesses.map(|file| folder.join(file));
        let mut sweep = Self {
            name: name.to_owned(),
            text: text.to_owned(),
            study: base.about().study.clone(),
            plan,
            keys: Vec::new(),
            quick: fields.form == Form::Quick,
            refused: fields.refused,
            real: RealInput { memory, accesses, measure: false },
        };
        sweep.keys = sweep.read_keys(&fields.keys)?;
        Ok(sweep)
    }

    fn read_keys(&self, keys: &Table) -> Result<Vec<Key>, PlanError> {
        let mut leaves = Vec::new();
        let document = DeTable::parse(&self.text).ok();
        let spans = document.as_ref().and_then(|document| document.get_ref().get("keys"));
        gather(keys, spans.and_then(|keys| keys.get_ref().as_table()), "", &mut leaves);
        leaves.sort_by_key(|(_, at, _)| *at);
        let mut read: Vec<Key> = Vec::new();
        let columns = result::schema();
        for (path, at, values) in leaves {
            let refuse = |why: String| self.refuse(at, &path, why);
            if ["about.kind", "about.study"].contains(&path.as_str()) {
                return Err(refuse("it names what is swept, and stays".to_owned()));
            }
            if columns.iter().any(|(name, _)| *name == path) || path == POINT {
                return Err(refuse("the table has a column of this name".to_owned()));
            }
            if read.iter().any(|key| key.path == path) {
                return Err(refuse("it stands twice".to_owned()));
            }
            read.push(Key::new(&path, values).map_err(refuse)?);
            let points = read
                .iter()
                .fold(1, |points: u64, key| points.saturating_mul(key.values.len() as u64));
            if points > POINTS_MAX {
                let why = format!("with it {points} points, of at most {POINTS_MAX}");
                return Err(self.refuse(at, &path, why));
            }
        }
        if read.is_empty() {
            return Err(self.refuse(None, "", "no key to sweep".to_owned()));
        }
        Ok(read)
    }

    /// The error of a key of the sweep, with its line.
    fn refuse(&self, at: Option<usize>, path: &str, why: String) -> PlanError {
        let line = at.and_then(|at| self.text.get(..at)).map(|text| text.matches('\n').count() + 1);
        let key = if path.is_empty() { "keys".to_owned() } else { format!("keys.{path}") };
        let key = line.map_or(key.clone(), |line| format!("line {line}, {key}"));
        PlanError::Value { plan: self.name.clone(), key, why }
    }

    /// Number of points.
    pub fn points(&self) -> u64 {
        self.keys.iter().map(|key| key.values.len() as u64).product()
    }

    /// The places of a point's values in their keys' lists.
    pub fn places(&self, point: u64) -> Vec<usize> {
        let mut rest = point;
        let mut places: Vec<usize> = self
            .keys
            .iter()
            .rev()
            .map(|key| {
                let of = key.values.len() as u64;
                let place = rest % of;
                rest /= of;
                place as usize
            })
            .collect();
        places.reverse();
        places
    }

    /// The plan of a point, as TOML.
    ///
    /// # Errors
    /// [`PlanError`] if a key cannot be set.
    pub fn plan_text(&self, point: u64) -> Result<String, PlanError> {
        let mut plan = self.plan.clone();
        for (key, place) in self.keys.iter().zip(self.places(point)) {
            set(&mut plan, &key.path, &key.values[place])
                .map_err(|Refused { key, why }| self.refuse(self.at(&key), &key, why))?;
        }
        self.to_text(&plan)
    }

    fn to_text(&self, plan: &Table) -> Result<String, PlanError> {
        let message = |error: toml::ser::Error| error.to_string();
        toml::to_string(plan)
            .map_err(|error| PlanError::Parse { plan: self.name.clone(), message: message(error) })
    }

    /// The study of a point.
    ///
    /// # Errors
    /// [`PlanError`], which names the sweep's key and line where one value alone is at fault.
    pub fn read_point(&self, point: u64) -> Result<Box<dyn ReadyStudy>, PlanError> {
        let text = self.plan_text(point)?;
        registry::parse(&self.name, &text).map_err(|error| self.fault(point, error))
    }

    /// The fault of a point: of one value, if the plan is refused for the same reason with it alone,
    /// or of all together.
    fn fault(&self, point: u64, error: PlanError) -> PlanError {
        let why = reason(&error);
        let places = self.places(point);
        for (key, place) in self.keys.iter().zip(&places) {
            let (mut plan, value) = (self.plan.clone(), &key.values[*place]);
            let alone = set(&mut plan, &key.path, value).ok().and_then(|()| {
                let text = self.to_text(&plan).ok()?;
                registry::parse(&self.name, &text).err().map(|error| reason(&error))
            });
            if alone.as_ref() == Some(&why) {
                let why = why.strip_prefix(&format!("{}: ", key.path)).unwrap_or(&why);
                return self.refuse(self.at(&key.path), &key.path, format!("{value}: {why}"));
            }
        }
        let values: Vec<String> = self
            .keys
            .iter()
            .zip(&places)
            .map(|(key, place)| format!("{} = {}", key.path, key.values[*place]))
            .collect();
        let key = format!("point {point} ({})", values.join(", "));
        PlanError::Value { plan: self.name.clone(), key, why }
    }

    /// The error of a point that takes more memory than there is.
    pub(crate) fn too_large(&self, point: u64, error: PlanError) -> PlanError {
        self.fault(point, error)
    }

    /// Where a key stands in the text.
    fn at(&self, path: &str) -> Option<usize> {
        let document = DeTable::parse(&self.text).ok()?;
        let keys = document.get_ref().get("keys")?.get_ref().as_table()?;
        let table: Fields = toml::from_str(&self.text).ok()?;
        let mut leaves = Vec::new();
        gather(&table.keys, Some(keys), "", &mut leaves);
        leaves.into_iter().find(|(other, _, _)| other == path)?.1
    }

    /// The columns of its table: the point's number, its keys, those of a result.
    pub fn schema(&self) -> Schema {
        let keys = self.keys.iter().map(|key| (key.path.clone(), key.column()));
        std::iter::once((POINT.to_owned(), Type::Int)).chain(keys).chain(result::schema()).collect()
    }

    /// The values of a point's first columns.
    pub(crate) fn front(&self, point: u64) -> Vec<Cell> {
        let values = self.keys.iter().zip(self.places(point)).map(|(key, place)| key.cell(place));
        std::iter::once(Cell::Int(point as i64)).chain(values).collect()
    }

    /// All that its points follow from but the program, and how many there are.
    pub fn to_json(&self) -> serde_json::Value {
        let keys: serde_json::Map<_, _> =
            self.keys.iter().map(|key| (key.path.clone(), json!(key.values))).collect();
        json!({
            "study": self.study,
            "plan": self.plan,
            "keys": self.keys.iter().map(|key| &key.path).collect::<Vec<_>>(),
            "values": keys,
            "points": self.points(),
            "quick": self.quick,
            "refused": self.refused,
            "memory": self.real.memory.as_ref().map(|machine| machine.name.clone()),
            "accesses": self.real.accesses_name(),
        })
    }
}

/// The column of a point's number.
pub const POINT: &str = "point";

/// The reason of a plan's refusal, without the text's place.
fn reason(error: &PlanError) -> String {
    match error {
        PlanError::Parse { message, .. } => {
            // TOML shows the line between bars, and then says why.
            let said =
                message.lines().rev().take_while(|line| !line.contains(" |")).collect::<Vec<_>>();
            let said: Vec<&str> = said.into_iter().rev().collect();
            said.join("; ")
        }
        PlanError::Value { key, why, .. } => {
            let key = key.split_once(", ").map_or(key.as_str(), |(_, key)| key);
            format!("{key}: {why}")
        }
        PlanError::Orders { .. } => error.to_string(),
    }
}

/// The keys below a table: path, place in the text, value.
fn gather<'t>(
    table: &'t Table,
    spans: Option<&DeTable<'_>>,
    before: &str,
    leaves: &mut Vec<(String, Option<usize>, &'t Value)>,
) {
    for (name, value) in table {
        let path = if before.is_empty() { name.clone() } else { format!("{before}.{name}") };
        let found = spans.and_then(|spans| spans.get_key_value(name.as_str()));
        match value {
            Value::Table(inner) if !is_range(inner) => {
                let below = found
                    .and_then(|(_, value): (_, &Spanned<DeValue<'_>>)| value.get_ref().as_table());
                gather(inner, below, &path, leaves);
            }
            value => leaves.push((path, found.map(|(name, _)| name.span().start), value)),
        }
    }
}
