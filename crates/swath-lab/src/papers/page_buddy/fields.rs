//! Contiguity fields beside the ideal one of the timed system: which are measured,
//! how their designs are called, and what they leave of the gains of PBS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::savings::{AS_MEASURED, CATEGORY, LEVEL, READING, saved};
use crate::papers::page_buddy::setting::{BlockFrames, ContiguityBits, MachinePlan};
use crate::study::bounds::{Ascending, Distinct, Forms};
use crate::study::grid::{Evidence, Grid, View, largest};
use crate::study::kind::Drawn;
use crate::study::plan::{Refused, require};
use crate::study::results::{Figure, FigureKind, Series};

/// Contiguity fields that are measured beside the machine's own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldsPlan {
    /// The fields.
    pub others: Distinct<ContiguityBits>,
    /// Sizes of the free blocks, among those of the figures.
    pub block_frames: Forms<Ascending<BlockFrames>>,
}

impl FieldsPlan {
    /// Refuses fields that the format has no room for, the machine's own, and sizes that
    /// are not among the figures' `all`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(
        &self,
        machine: &MachinePlan,
        all: &Forms<Ascending<BlockFrames>>,
    ) -> Result<(), Refused> {
        for quick in [false, true] {
            let known = all.of(quick);
            for size in self.block_frames.of(quick).iter() {
                require(known.contains(size), "fields.block_frames", || {
                    format!("{size} is not among block_frames")
                })?;
            }
        }
        for field in &*self.others {
            field.check("fields.others", machine.format)?;
            require(*field != machine.contiguity_bits, "fields.others", || {
                "the machine's own field stands there again".to_owned()
            })?;
        }
        Ok(())
    }
}

/// The name of a design whose table has this field: the paper's on the machine's own.
pub(crate) fn name_under(machine: &MachinePlan, field: ContiguityBits, design: &str) -> String {
    match field == machine.contiguity_bits || design == "TRAD" {
        true => design.to_owned(),
        false => format!("{design}, {}", field.title(machine.format)),
    }
}

/// The largest share of cycles that PBS saves over a design on category II, both with
/// this field, at the sizes at which each field was measured.
fn most_saved(
    machine: &MachinePlan,
    field: ContiguityBits,
    sizes: &[u64],
    grid: &Grid,
    over: &str,
) -> Option<Evidence> {
    let [pbs, over] = ["PBS", over].map(|design| name_under(machine, field, design));
    let most = |view: &View<'_>| {
        let cells = view.select().is(READING, AS_MEASURED).is(CATEGORY, "II");
        let cells = cells.all(LEVEL, sizes.iter().copied());
        Ok(largest(&saved(&cells, &pbs, &over)?))
    };
    grid.evidence(most).ok()
}

const OVER: [&str; 3] = ["PCAD", "AT", "TRAD"];

/// The largest gains of PBS with each field.
pub(crate) struct Gains {
    /// The fields' names, the machine's own first.
    fields: Vec<String>,
    sizes: Vec<u64>,
    /// For each of [`OVER`] the gain with each field.
    most: Vec<Vec<Option<Evidence>>>,
}

impl Gains {
    /// Selects them from the grid.
    pub(crate) fn of(plan: &FieldsPlan, machine: &MachinePlan, quick: bool, grid: &Grid) -> Self {
        let sizes: Vec<u64> = plan.block_frames.of(quick).iter().map(|size| size.get()).collect();
        let own = [machine.contiguity_bits];
        let fields: Vec<ContiguityBits> = own.into_iter().chain(plan.others.to_vec()).collect();
        let most = OVER.map(|over| {
            let of = |field: &ContiguityBits| most_saved(machine, *field, &sizes, grid, over);
            fields.iter().map(of).collect()
        });
        let fields = fields.iter().map(|field| field.title(machine.format)).collect();
        Self { fields, sizes, most: most.into() }
    }

    /// Figure "Contiguity fields".
    pub(crate) fn figure(&self) -> Drawn {
        let id = "Contiguity fields";
        let title = "of the table, and what PBS saves with each";
        let y_label = "largest share of cycles saved by PBS";
        let figure = Figure::new(id, title, FigureKind::Bars, "contiguity field", y_label);
        let of = |(over, most): (&str, &Vec<Option<Evidence>>)| {
            let points = self
                .fields
                .iter()
                .zip(most)
                .filter_map(|(field, most)| Some(most.as_ref()?.point(field.as_str())));
            Series::new(id, "contiguity_field", "saved_share", &format!("over {over}"), points)
        };
        let series = OVER.into_iter().zip(&self.most).map(of).collect();
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let caption = format!(
            "Category II; block sizes {}. Each design has the field of its group.",
            sizes.join(", ")
        );
        Drawn { figure: figure.with_caption(&caption), series }
    }

    /// The gains in words: the machine's own field, then what each other leaves of them.
    pub(crate) fn finding(&self) -> String {
        let gain =
            |nth: usize, field: usize| Some(self.most[nth][field].as_ref()?.estimate().value);
        let with = |(field, name): (usize, &String)| {
            let gains = OVER.iter().enumerate().filter_map(|(nth, over)| {
                let (gain, ideal) = (gain(nth, field)?, gain(nth, 0)?);
                let share = match field {
                    0 => String::new(),
                    _ => format!(" ({:.0}% of the gain)", 100.0 * gain / ideal),
                };
                Some(format!("{:.1}% over {over}{share}", 100.0 * gain))
            });
            let gains: Vec<String> = gains.collect();
            (!gains.is_empty()).then(|| format!("with {name} {}", gains.join(", ")))
        };
        let all: Vec<String> = self.fields.iter().enumerate().filter_map(with).collect();
        format!("The most that PBS saves on category II: {}.", all.join("; "))
    }
}
