//! The map of a machine's memory at moments evenly over time: what a film shows of a design.

use serde::{Deserialize, Serialize};
use swath_arch::Extent;
use swath_frame::layout::Layout;

use crate::film::{COLUMNS, CellUse, Cells, Film, MOMENTS_MAX, Reel, map, size};
use crate::papers::green::machine::view::MachineView;

/// Moments of a film: some twelve seconds.
const MOMENTS: u64 = 60;
const _: () = assert!(MOMENTS as usize <= MOMENTS_MAX);

/// The maps of a machine's memory over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Maps {
    pub(crate) cell_frames: u64,
    pub(crate) moments_us: Vec<u64>,
    pub(crate) maps: Vec<String>,
}

impl Maps {
    /// Keeps the map of a machine if the next moment between `from_us` and `until_us` has come.
    /// O(frames / 64) then.
    pub(crate) fn see(
        &mut self,
        view: &dyn MachineView,
        time_us: u64,
        (from_us, until_us): (u64, u64),
    ) {
        let nth = self.moments_us.len() as u64;
        if nth >= MOMENTS || time_us < from_us + (until_us - from_us) * nth / MOMENTS {
            return;
        }
        let layout = view.layout();
        let cells = cells(layout);
        let rests: Vec<bool> = (0..layout.banks()).map(|bank| view.rests(bank)).collect();
        let cell = |frames: Extent| {
            let state = view.frames(frames);
            let rests = layout.bank_of(frames.start).is_some_and(|bank| rests[bank]);
            CellUse::of(state.present, state.movable, state.unmovable, rests)
        };
        self.cell_frames = cells.frames();
        self.moments_us.push(time_us);
        self.maps.push(map(cells.extents().map(cell)));
    }
}

/// The cells of all banks.
fn cells(layout: &Layout) -> Cells {
    let banks = (0..layout.banks()).filter_map(|bank| layout.bank(bank));
    let ends = banks.map(|bank| (bank.start, bank.end()));
    let whole = ends.reduce(|(first, end), (start, past)| (first.min(start), end.max(past)));
    let (first, end) = whole.unwrap_or_default();
    Cells::new(Extent::new(first, end.raw() - first.raw()))
}

/// A film of designs under a load, in simulated time: the name of each and its maps, all of the
/// same moments. `None` without any.
pub(crate) fn film(load: &str, designs: &[(String, &Maps)]) -> Option<Film> {
    let (_, Maps { cell_frames, moments_us, .. }) = designs.first()?;
    let clock = |us: &u64| format!("{}:{:02}", us / 60_000_000, us / 1_000_000 % 60);
    let names: Vec<&str> = designs.iter().map(|(design, _)| design.as_str()).collect();
    let reel =
        |(design, maps): &(String, &Maps)| Reel { design: design.clone(), maps: maps.maps.clone() };
    Some(Film {
        title: format!("{}: {load}", names.join(" and ")),
        caption: format!(
            "Each cell is {} of physical memory, {} a row, in minutes and seconds of simulated time. \
             A gap is a hole. Below each map: the cells that are wholly free, their longest run, and \
             its course.",
            size(*cell_frames),
            size(COLUMNS as u64 * cell_frames),
        ),
        cell_frames: *cell_frames,
        moments: moments_us.iter().map(clock).collect(),
        reels: designs.iter().map(reel).collect(),
    })
}
