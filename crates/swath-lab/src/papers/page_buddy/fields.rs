//! Contiguity fields beside the ideal one of the timed system: which are measured,
//! how their designs are called, and what they leave of the gains of PBS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::savings::{AS_MEASURED, CATEGORY, DESIGN, LEVEL, READING, saved};
use crate::papers::page_buddy::setting::{BlockFrames, ContiguityBits, MachinePlan};
use crate::study::bounds::{Ascending, Distinct, Forms};
use crate::study::grid::{Evidence, Grid, View, largest};
use crate::study::kind::Drawn;
use crate::study::plan::Refused;
use crate::study::results::{Figure, FigureKind, Series};

/// Contiguity fields that are measured beside the machine's own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldsPlan {
    /// The fields.
    pub others: Distinct<ContiguityBits>,
    /// Sizes of the free blocks; those that are not among the figures' are left out.
    pub block_frames: Forms<Ascending<BlockFrames>>,
}

impl FieldsPlan {
    /// Refuses fields that the format has no room for.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, machine: &MachinePlan) -> Result<(), Refused> {
        self.others.iter().try_for_each(|field| field.check("fields.others", machine.format))
    }

    /// Returns the fields that are not the machine's own.
    pub(crate) fn others(&self, machine: &MachinePlan) -> impl Iterator<Item = ContiguityBits> {
        let own = machine.contiguity_bits;
        self.others.iter().copied().filter(move |&field| field != own)
    }

    /// Returns the sizes of free blocks among `all` at which they are measured.
    pub(crate) fn sizes(&self, all: &[u64], quick: bool) -> Vec<u64> {
        let sizes = self.block_frames.of(quick).iter().map(|size| size.get());
        sizes.filter(|size| all.contains(size)).collect()
    }
}

/// The name of a design whose table has this field: the paper's on the machine's own.
pub(crate) fn name_under(machine: &MachinePlan, field: ContiguityBits, design: &str) -> String {
    match field == machine.contiguity_bits || design.starts_with("TRAD") {
        true => design.to_owned(),
        false => format!("{design}, {}", field.title(machine.format)),
    }
}

/// The designs in the order of the figures, those of other fields last.
pub(crate) fn designs_of(grid: &Grid) -> Vec<String> {
    let mut designs: Vec<String> = grid.values(DESIGN).iter().map(ToString::to_string).collect();
    designs.sort_by_key(|design| design.contains("bits"));
    designs
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

/// The largest share of cycles that PBS takes longer with this field than with the
/// machine's own.
fn most_lost(
    machine: &MachinePlan,
    field: ContiguityBits,
    sizes: &[u64],
    grid: &Grid,
) -> Option<Evidence> {
    let name = name_under(machine, field, "PBS");
    let most = |view: &View<'_>| {
        let cells = view.select().is(READING, AS_MEASURED).is(CATEGORY, "II");
        let cells = cells.all(LEVEL, sizes.iter().copied());
        let longer = cells.pairs(DESIGN, &*name, "PBS", |with, own| {
            Ok(with.get("cycles")? / own.get("cycles")? - 1.0)
        })?;
        Ok(largest(&longer))
    };
    grid.evidence(most).ok()
}

/// Facts about the fields.
pub(crate) const NOTES: [&str; 4] = [
    "The claims are judged on the ideal field, which stands beside the table and which a walk \
     reads at no cost: the paper does not say where its 8-bit numbers stand in a 32-bit \
     descriptor. A format's own bits are those that a page's descriptor leaves free.",
    "The bits of a line are the same bits of all descriptors in the 64 bytes around a page's, \
     taken together. The walk's last read then takes all four beats of its burst, not one, and \
     is so much longer; the hardware compares the descriptors of the line with each other.",
    "A line joins whatever goes on in it, and so do blocks that lie side by side by chance: that \
     helps PCAD on the binary buddy's small blocks more than PBS, whose gain over it shrinks there.",
    "Figure \"Table writes\": a line's numbers are written with the block's own descriptors, and in \
     those of other blocks where one block ends and another goes on over the line's end. Free blocks \
     of one size, a power of two, never do the latter; those of a real machine's memory (--memory) do.",
];

const OVER: [&str; 3] = ["PCAD", "AT", "TRAD"];

/// The largest gains of PBS with each field.
pub(crate) struct Gains {
    /// The fields' names, the machine's own first.
    fields: Vec<String>,
    sizes: Vec<u64>,
    /// For each of [`OVER`] the gain with each field.
    most: Vec<Vec<Option<Evidence>>>,
    /// With each field the share of cycles by which PBS is the longer.
    lost: Vec<Option<Evidence>>,
}

impl Gains {
    /// Selects them from the grid.
    pub(crate) fn of(
        plan: &FieldsPlan,
        machine: &MachinePlan,
        sizes: Vec<u64>,
        grid: &Grid,
    ) -> Self {
        let own = [machine.contiguity_bits];
        let fields: Vec<ContiguityBits> = own.into_iter().chain(plan.others(machine)).collect();
        let most = OVER.map(|over| {
            let of = |field: &ContiguityBits| most_saved(machine, *field, &sizes, grid, over);
            fields.iter().map(of).collect()
        });
        let lost = fields.iter().map(|field| most_lost(machine, *field, &sizes, grid)).collect();
        let fields = fields.iter().map(|field| field.title(machine.format)).collect();
        Self { fields, sizes, most: most.into(), lost }
    }

    /// Figure "Contiguity fields", if anything was measured.
    pub(crate) fn figure(&self) -> Option<Drawn> {
        let id = "Contiguity fields";
        let title = "of the table, and what PBS saves with each";
        let y_label = "largest share of cycles saved by PBS";
        let figure = Figure::new(id, title, FigureKind::Bars, "contiguity field", y_label);
        let of = |(over, most): (&str, &Vec<Option<Evidence>>)| {
            let points = self.fields.iter().zip(most);
            let points = points
                .filter_map(|(field, most)| Some(most.as_ref()?.point(field.as_str())))
                .collect::<Vec<_>>();
            Series::new(id, "contiguity_field", "saved_share", &format!("over {over}"), points)
        };
        let series = OVER.into_iter().zip(&self.most).map(of);
        let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let caption = format!(
            "Category II; block sizes {}. Each design has the field of its group.",
            sizes.join(", ")
        );
        (!series.is_empty()).then(|| Drawn { figure: figure.with_caption(&caption), series })
    }

    /// The gains in words: with the machine's own field, then with each other; none if
    /// nothing was measured.
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
            let lost = self.lost[field].as_ref().filter(|_| field > 0);
            let lost = lost.map_or(String::new(), |lost| {
                format!(", and PBS takes up to {:.0}% longer", 100.0 * lost.estimate().value)
            });
            (!gains.is_empty()).then(|| format!("with {name} {}{lost}", gains.join(", ")))
        };
        let all: Vec<String> = self.fields.iter().enumerate().filter_map(with).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!(" The most that PBS saves on category II: {}.", all.join("; ")),
        }
    }
}
