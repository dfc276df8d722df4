//! A machine's memory as areas with vacuums between them (Zhang, Lu and Zhang, section 3.2).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::segment::{Area, AreaSpace};

use crate::study::bounds::Bounded;
use crate::study::claim::Conditions;
use crate::study::plan::{Refused, require};

/// Frames of a mebibyte.
pub const MIB_FRAMES: u64 = 256;

/// MiB of all memory, of an area or of a request.
pub type Mib = Bounded<1, 65_536>;

/// A machine's memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AreasPlan {
    /// Its name in figures.
    pub name: String,
    /// First MiB and length in MiB of each area; the space between is vacuum.
    pub areas_mib: Vec<(Bounded<0, 1_048_575>, Mib)>,
}

impl AreasPlan {
    /// First MiB and length in MiB of each area.
    pub fn areas(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.areas_mib.iter().map(|(first, len)| (first.get(), len.get()))
    }

    /// All memory in MiB, with that which fits no unit.
    pub fn total_mib(&self) -> u64 {
        self.areas().map(|(_, len)| len).sum()
    }

    /// The areas in words: "16 of 16 MiB".
    pub fn sizes(&self) -> String {
        let lens: Vec<u64> = self.areas().map(|(_, len)| len).collect();
        match lens.iter().min() {
            Some(least) if lens.iter().all(|len| len == least) => equal_areas(lens.len(), *least),
            _ => format!("{} of {} MiB in all", lens.len(), self.total_mib()),
        }
    }

    /// Returns true if these are the areas of the paper's evaluation: 256 MiB, divided into
    /// 16 (section 5.1).
    pub fn is_papers(&self) -> bool {
        self.sizes() == equal_areas(16, 16)
    }

    /// The areas of the paper's evaluation as a condition of its claims.
    pub fn conditions(&self) -> Conditions {
        Conditions::new().same("areas", equal_areas(16, 16), self.sizes())
    }

    /// Calls `work` with the accelerator's space, in units of 2^`unit` frames.
    ///
    /// # Errors
    /// Areas that make no space, in words.
    pub fn with_space<T>(
        &self,
        unit: Order,
        work: impl FnOnce(AreaSpace<'_>) -> T,
    ) -> Result<T, String> {
        let extent =
            |(first, len): (u64, u64)| Extent::new(Pfn::new(first * MIB_FRAMES), len * MIB_FRAMES);
        let areas: Vec<Extent> = self.areas().map(extent).collect();
        let mut storage = vec![Area::default(); areas.len()];
        let space = AreaSpace::new(&areas, unit, &mut storage);
        Ok(work(space.map_err(|error| error.to_string())?))
    }

    /// Refuses areas that overlap, too many of them and too much memory.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, table: &str) -> Result<(), Refused> {
        let key = format!("{table}.areas_mib");
        let count = self.areas_mib.len();
        require((1..=1024).contains(&count), &key, || format!("{count} areas, not 1 to 1024"))?;
        require(self.total_mib() <= 1 << 16, &key, || "more than 65536 MiB".into())?;
        self.with_space(Order::BASE, |_| ()).map_err(|why| Refused { key, why })
    }
}

/// Areas of one size in words.
pub(crate) fn equal_areas(count: usize, len_mib: u64) -> String {
    format!("{count} of {len_mib} MiB")
}

/// A machine with areas of these first MiB and lengths in MiB.
#[cfg(test)]
pub(crate) fn machine(name: &str, areas: &[(u64, u64)]) -> AreasPlan {
    let area = |&(first, len): &(u64, u64)| Some((Bounded::new(first)?, Bounded::new(len)?));
    let areas_mib = areas.iter().map(area).collect::<Option<_>>().unwrap();
    AreasPlan { name: name.into(), areas_mib }
}
