//! Films: the map of physical memory at each of some moments, for each design.
//!
//! A map has a cell for so many frames, in the order of their numbers, and a cell has a
//! [use](CellUse). It is kept as text, a letter for each cell, so that results stay readable.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use swath_arch::Extent;

/// The name of a film's file without its extension.
pub const FILM_STEM: &str = "film";
/// The most cells of a map.
pub const CELLS_MAX: usize = 3072;
/// Cells of a row of a map.
pub const COLUMNS: usize = 64;
/// The most moments.
pub const MOMENTS_MAX: usize = 80;
/// The most designs side by side.
pub const REELS_MAX: usize = 8;
/// Frames of a large page: no cell has fewer.
const LARGE_PAGE_FRAMES: u64 = 512;

/// A map of memory over time, for each of some designs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Film {
    /// Its subject, in a few words.
    pub title: String,
    /// One or two sentences below it; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caption: String,
    /// Frames of a cell.
    pub cell_frames: u64,
    /// The moments in words: "12 min".
    pub moments: Vec<String>,
    /// The designs.
    pub reels: Vec<Reel>,
}

/// The maps of a design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reel {
    /// The design.
    pub design: String,
    /// The map at each moment: a [letter](CellUse::letter) for each cell.
    pub maps: Vec<String>,
}

/// The use of the frames of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum CellUse {
    /// There are none: a hole.
    Absent,
    /// All are free.
    Free,
    /// All are free, and their bank is powered down.
    Resting,
    /// Up to half are in use, all by movable owners.
    Sparse,
    /// More than half are in use, all by movable owners.
    Dense,
    /// At least one cannot be moved.
    Unmovable,
}

impl CellUse {
    /// Every use.
    pub const ALL: [Self; 6] =
        [Self::Absent, Self::Free, Self::Resting, Self::Sparse, Self::Dense, Self::Unmovable];

    /// The use of frames of which so many are there, and so many of these in use.
    pub const fn of(present: u64, movable: u64, unmovable: u64, rests: bool) -> Self {
        if present == 0 {
            Self::Absent
        } else if unmovable > 0 {
            Self::Unmovable
        } else if movable > 0 {
            if 2 * movable > present { Self::Dense } else { Self::Sparse }
        } else if rests {
            Self::Resting
        } else {
            Self::Free
        }
    }

    /// Its letter in a map.
    pub const fn letter(self) -> char {
        match self {
            Self::Absent => '-',
            Self::Free => '.',
            Self::Resting => 'r',
            Self::Sparse => 's',
            Self::Dense => 'd',
            Self::Unmovable => 'u',
        }
    }

    /// The use of a letter.
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|cell| cell.letter() == letter)
    }

    /// Its name in a legend.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Absent => "no memory",
            Self::Free => "free",
            Self::Resting => "free, powered down",
            Self::Sparse => "movable, up to half",
            Self::Dense => "movable, over half",
            Self::Unmovable => "some unmovable",
        }
    }

    /// Returns true if no frame is in use.
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::Resting)
    }
}

/// The cells of a span of frames: aligned, all of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    span: Extent,
    order: u32,
}

impl Cells {
    /// Cells of at least 2 MiB, of the smallest power of two that makes at most [`CELLS_MAX`].
    pub fn new(span: Extent) -> Self {
        let mut order = LARGE_PAGE_FRAMES.ilog2();
        let mut cells = Self { span, order };
        while cells.count() > CELLS_MAX as u64 {
            order += 1;
            cells = Self { span, order };
        }
        cells
    }

    /// Frames of a cell.
    pub const fn frames(&self) -> u64 {
        1 << self.order
    }

    /// Number of cells.
    pub fn count(&self) -> u64 {
        let first = self.span.start.align_down(self.order).raw();
        (self.span.end().raw() - first).div_ceil(self.frames())
    }

    /// The cells as frames, ascending.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + use<> {
        let (first, frames) = (self.span.start.align_down(self.order), self.frames());
        (0..self.count())
            .filter_map(move |nth| Some(Extent::new(first.checked_add(nth * frames)?, frames)))
    }
}

/// A map as text.
pub fn map(cells: impl IntoIterator<Item = CellUse>) -> String {
    cells.into_iter().map(CellUse::letter).collect()
}

/// Frames in words: "2 MiB".
pub fn size(frames: u64) -> String {
    let mib = frames / 256;
    if mib > 0 && mib.is_multiple_of(1024) {
        format!("{} GiB", mib / 1024)
    } else {
        format!("{mib} MiB")
    }
}

/// Faults of a film.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilmFault {
    /// A number of designs that is none.
    #[error("{0} designs, not 1 to {REELS_MAX}")]
    Reels(usize),
    /// A number of moments that is none.
    #[error("{0} moments, not 1 to {MOMENTS_MAX}")]
    Moments(usize),
    /// Frames of a cell.
    #[error("cells of {0} frames, not a power of two from {LARGE_PAGE_FRAMES}")]
    CellFrames(u64),
    /// Two designs have one name.
    #[error("design {0:?} stands twice")]
    SameDesign(String),
    /// A design lacks a map, or has too many.
    #[error("design {design:?} has {maps} maps of {moments} moments")]
    Maps {
        /// The design.
        design: String,
        /// Its maps.
        maps: usize,
        /// The moments.
        moments: usize,
    },
    /// A map is none.
    #[error("design {design:?}, moment {moment}: {what}")]
    Map {
        /// The design.
        design: String,
        /// The moment, from 0.
        moment: usize,
        /// The fault.
        what: MapFault,
    },
}

/// Faults of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapFault {
    /// A number of cells.
    #[error("{0} cells, not 1 to {CELLS_MAX}")]
    Cells(usize),
    /// Another number of cells than at the first moment of the first design.
    #[error("{0} cells, and {1} in the first map")]
    Other(usize, usize),
    /// No use has this letter.
    #[error("{0:?} is no use of a cell")]
    Letter(char),
}

impl Film {
    /// Cells of each map.
    pub fn cells(&self) -> usize {
        let maps = self.reels.first().and_then(|reel| reel.maps.first());
        maps.map_or(0, |map| map.chars().count())
    }

    /// Walks what a film must be. O(cells of all maps).
    ///
    /// # Errors
    /// The first [`FilmFault`].
    pub fn check(&self) -> Result<(), FilmFault> {
        let moments = self.moments.len();
        if !(1..=REELS_MAX).contains(&self.reels.len()) {
            return Err(FilmFault::Reels(self.reels.len()));
        }
        if !(1..=MOMENTS_MAX).contains(&moments) {
            return Err(FilmFault::Moments(moments));
        }
        if !self.cell_frames.is_power_of_two() || self.cell_frames < LARGE_PAGE_FRAMES {
            return Err(FilmFault::CellFrames(self.cell_frames));
        }
        let (cells, mut designs) = (self.cells(), BTreeSet::new());
        for Reel { design, maps } in &self.reels {
            if !designs.insert(design) {
                return Err(FilmFault::SameDesign(design.clone()));
            }
            if maps.len() != moments {
                let (design, maps) = (design.clone(), maps.len());
                return Err(FilmFault::Maps { design, maps, moments });
            }
            for (moment, map) in maps.iter().enumerate() {
                check_map(map, cells).map_err(|what| FilmFault::Map {
                    design: design.clone(),
                    moment,
                    what,
                })?;
            }
        }
        Ok(())
    }
}

fn check_map(map: &str, cells: usize) -> Result<(), MapFault> {
    match map.chars().count() {
        count if !(1..=CELLS_MAX).contains(&count) => return Err(MapFault::Cells(count)),
        count if count != cells => return Err(MapFault::Other(count, cells)),
        _ => {}
    }
    let stranger = map.chars().find(|&letter| CellUse::from_letter(letter).is_none());
    stranger.map_or(Ok(()), |letter| Err(MapFault::Letter(letter)))
}

#[cfg(test)]
mod unit {
    use swath_arch::Pfn;

    use super::*;

    fn film() -> Film {
        let reel = |design: &str, maps: [&str; 2]| Reel {
            design: design.to_owned(),
            maps: maps.map(str::to_owned).to_vec(),
        };
        Film {
            title: "a film".to_owned(),
            caption: String::new(),
            cell_frames: 512,
            moments: vec!["1 min".to_owned(), "2 min".to_owned()],
            reels: vec![reel("Linux", ["..su", "-rdu"]), reel("PBS", ["....", "...."])],
        }
    }

    #[test]
    fn cells_cover_the_span_and_are_few() {
        for (start, count) in [(0, 1 << 20), (700, 1), (511, 2), (3, 5 << 18), (1 << 20, 1 << 40)] {
            let span = Extent::new(Pfn::new(start), count);
            let cells = Cells::new(span);
            let extents: Vec<Extent> = cells.extents().collect();
            assert!(extents.len() <= CELLS_MAX && extents.len() as u64 == cells.count());
            assert!(extents.windows(2).all(|pair| pair[0].end() == pair[1].start));
            let inside: u64 = extents.iter().map(|cell| cell.intersect(span).count).sum();
            assert_eq!(inside, count);
            assert!(extents.iter().all(|cell| !cell.intersect(span).is_empty()), "{start}");
        }
        assert_eq!(Cells::new(Extent::new(Pfn::new(0), 1 << 20)).frames(), 512);
    }

    #[test]
    fn a_use_follows_from_counts_and_has_a_letter_of_its_own() {
        let of = CellUse::of;
        assert_eq!(of(0, 0, 0, true), CellUse::Absent);
        assert_eq!((of(512, 0, 0, false), of(512, 0, 0, true)), (CellUse::Free, CellUse::Resting));
        assert_eq!(
            (of(512, 1, 0, false), of(512, 256, 0, false)),
            (CellUse::Sparse, CellUse::Sparse)
        );
        assert_eq!(
            (of(512, 257, 0, false), of(3, 2, 1, false)),
            (CellUse::Dense, CellUse::Unmovable)
        );
        for cell in CellUse::ALL {
            assert_eq!(CellUse::from_letter(cell.letter()), Some(cell));
        }
    }

    #[test]
    fn a_film_that_is_none_is_refused() {
        assert_eq!(film().check(), Ok(()));
        let wrong = |change: fn(&mut Film)| {
            let mut one = film();
            change(&mut one);
            one.check().unwrap_err().to_string()
        };
        let faults = [
            (wrong(|film| film.reels.clear()), "0 designs"),
            (wrong(|film| film.moments.clear()), "0 moments"),
            (wrong(|film| film.moments = vec![String::new(); 81]), "81 moments"),
            (wrong(|film| film.cell_frames = 513), "513 frames"),
            (wrong(|film| film.reels[1].design = "Linux".to_owned()), "twice"),
            (wrong(|film| drop(film.reels[1].maps.pop())), "1 maps of 2"),
            (wrong(|film| film.reels[1].maps[1].push('.')), "5 cells, and 4"),
            (wrong(|film| film.reels[0].maps[0].clear()), "0 cells"),
            (wrong(|film| film.reels[0].maps[1] = "-r<u".to_owned()), "'<' is no use"),
        ];
        for (error, word) in faults {
            assert!(error.contains(word), "{word} in {error}");
        }
    }
}
