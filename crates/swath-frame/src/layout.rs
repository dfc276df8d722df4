//! The division of a machine's memory: nodes, zones, banks and sections.
//!
//! A **node** is the memory near one processor. A **zone** is the part of a
//! node that some devices can address: DMA below 16 MiB, DMA32 below 4 GiB,
//! Normal above, and, if asked for, Movable at the end of a node, for movable
//! frames only. A **bank** is the range whose power is managed as one, a
//! **section** the range that is taken offline as one. Banks and sections are
//! counted from address 0 and know nothing of zones, so a bank may cross a zone
//! boundary; such a bank stays in the allocation pool (section IV-D of the
//! paper, "When memory bank crosses zone boundary").
//!
//! ```text
//!  nodes    |            0                           |         1            |
//!  zones    |DMA|   DMA32    |  hole |    Normal     |       Normal         |
//!  banks    |0      |1      |2       |3       |4     .  |5       |6       |
//!            crosses                                 crosses
//! ```
//!
//! # Interleaving
//! With two-way interleaving (Table IV), neighbouring stripes of addresses lie
//! in two channels in turn. Stripes are shorter than a frame or a few frames
//! long, so that a range of frames as long as two banks lies half in a bank of
//! the one channel and half in the bank of the same number of the other.
//! Neither can rest while the other's frames are in use. What is powered as
//! one, and called a bank here, is therefore the pair: one range of twice the
//! length.

use core::fmt;

use swath_arch::{BASE_PAGE_SHIFT, Extent, Pfn, PhysAddr};

use crate::map::{ByteRange, MemoryMap};

/// The most nodes of a machine.
pub const NODES_MAX: usize = 16;

/// The most zones of a machine.
pub const ZONES_MAX: usize = NODES_MAX * ZoneKind::ALL.len();

/// Frames of a bank of 256 MiB.
pub const BANK_FRAMES: u64 = 256 << (20 - BASE_PAGE_SHIFT);

/// Frames of a section of 128 MiB.
pub const SECTION_FRAMES: u64 = 128 << (20 - BASE_PAGE_SHIFT);

/// Banks and sections hold a multiple of so many frames: a block of Linux's
/// largest order never crosses their borders.
pub const UNIT_FRAMES: u64 = 1024;

const DMA_END: u64 = 16 << (20 - BASE_PAGE_SHIFT);
const DMA32_END: u64 = 4 << (30 - BASE_PAGE_SHIFT);

/// The devices and owners that a zone's frames can serve, in the order in which
/// a request may fall back from the last to the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZoneKind {
    /// Below 16 MiB.
    Dma,
    /// From 16 MiB to 4 GiB.
    Dma32,
    /// From 4 GiB on.
    Normal,
    /// For movable frames only.
    Movable,
}

impl ZoneKind {
    /// Every kind, ascending.
    pub const ALL: [Self; 4] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable];
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
        })
    }
}

/// A zone of a node that has frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutZone {
    /// The node's number.
    pub node: usize,
    /// The devices and owners that its frames can serve.
    pub kind: ZoneKind,
    /// From its first frame to its last, holes included.
    pub span: Extent,
    /// Number of its frames.
    pub present_frames: u64,
}

/// The channels in which neighbouring addresses lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Interleaving {
    /// A bank's addresses are its own.
    #[default]
    None,
    /// Two banks share their addresses stripe by stripe.
    TwoWay,
}

/// The division of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutConfig {
    /// Frames of a bank of one channel; a multiple of [`UNIT_FRAMES`].
    pub bank_frames: u64,
    /// True if banks are powered in pairs.
    pub interleaving: Interleaving,
    /// Frames of a section; a multiple of [`UNIT_FRAMES`].
    pub section_frames: u64,
    /// Number of frames of each node's highest zone that are set apart as
    /// [`ZoneKind::Movable`], at least as many as are left after rounding its
    /// start up to [`UNIT_FRAMES`]; 0 for none.
    pub movable_frames_per_node: u64,
}

impl Default for LayoutConfig {
    /// Banks of 256 MiB, sections of 128 MiB, not interleaved, no Movable zone.
    fn default() -> Self {
        Self {
            bank_frames: BANK_FRAMES,
            interleaving: Interleaving::None,
            section_frames: SECTION_FRAMES,
            movable_frames_per_node: 0,
        }
    }
}

/// Reasons why memory cannot be divided so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// There are no nodes, or more than [`NODES_MAX`].
    #[error("{count} nodes, not from 1 to {NODES_MAX}")]
    Nodes {
        /// Their number.
        count: usize,
    },
    /// A node begins before the one in front of it ends, or ends beyond the
    /// last frame number.
    #[error("node {node} at {span} is out of order")]
    NodeOrder {
        /// The node's number.
        node: usize,
        /// The place that was given for it.
        span: Extent,
    },
    /// A frame of the map lies in no node.
    #[error("frame {frame} lies in no node")]
    NoNode {
        /// The first such frame.
        frame: Pfn,
    },
    /// A node has no frame of the map.
    #[error("node {node} has no frame")]
    EmptyNode {
        /// The node's number.
        node: usize,
    },
    /// The length of a bank is 0, not a multiple of [`UNIT_FRAMES`], or too large.
    #[error("banks of {frames} frames, not a multiple of {UNIT_FRAMES}")]
    BankFrames {
        /// The length.
        frames: u64,
    },
    /// The length of a section is 0, not a multiple of [`UNIT_FRAMES`], or too large.
    #[error("sections of {frames} frames, not a multiple of {UNIT_FRAMES}")]
    SectionFrames {
        /// The length.
        frames: u64,
    },
}

/// Ranges of equal length, counted from the one with the first frame on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Grid {
    /// Number of such ranges before the first one counted.
    skipped: u64,
    count: usize,
    frames: u64,
    /// log2 of `frames`, if that is a whole number.
    shift: Option<u32>,
}

impl Grid {
    /// `None` if a length of `frames` will not do.
    fn new(span: Extent, frames: u64) -> Option<Self> {
        // Counts of frames of one range are kept in 32 bits.
        if frames == 0 || !frames.is_multiple_of(UNIT_FRAMES) || frames > u64::from(u32::MAX) {
            return None;
        }
        let skipped = span.start.raw() / frames;
        let count = usize::try_from((span.end().raw() - 1) / frames - skipped + 1).ok()?;
        let shift = frames.is_power_of_two().then(|| frames.trailing_zeros());
        Some(Self { skipped, count, frames, shift })
    }

    #[inline]
    fn of(&self, frame: Pfn) -> Option<usize> {
        let at = match self.shift {
            Some(shift) => frame.raw() >> shift,
            None => frame.raw() / self.frames,
        };
        let at = at.checked_sub(self.skipped)? as usize;
        (at < self.count).then_some(at)
    }

    fn get(&self, at: usize) -> Option<Extent> {
        let start = || Pfn::new((self.skipped + at as u64) * self.frames);
        (at < self.count).then(|| Extent::new(start(), self.frames))
    }
}

/// The nodes, zones, banks and sections of a machine.
///
/// Invariants: zones ascend by node, then by kind, and overlap nowhere; each
/// frame of the map lies in one of them.
///
/// # Examples
/// ```
/// use swath_arch::{Extent, Pfn};
/// use swath_frame::layout::{Layout, LayoutConfig, LayoutPreset, ZoneKind};
/// use swath_frame::MemoryMap;
///
/// let preset = LayoutPreset::FourGib;
/// let mut areas = [Extent::default(); 4];
/// let map = MemoryMap::new(preset.ranges(), &mut areas).unwrap();
/// let layout = Layout::new(&map, preset.nodes(), LayoutConfig::default()).unwrap();
/// let kinds: Vec<ZoneKind> = layout.zones().iter().map(|zone| zone.kind).collect();
/// assert_eq!(kinds, [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal]);
/// assert!(layout.bank_crosses_zones(0) && !layout.bank_crosses_zones(1));
/// assert_eq!(layout.section_of(Pfn::new(1 << 15)), Some(1));
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    zones: [LayoutZone; ZONES_MAX],
    zone_count: usize,
    node_count: usize,
    banks: Grid,
    sections: Grid,
}

impl Layout {
    /// Divides the frames of `map`. `nodes` are the spans of the nodes,
    /// ascending; they may have holes. O(n·a) for n nodes and a areas.
    ///
    /// # Errors
    /// A [`LayoutError`].
    pub fn new(
        map: &MemoryMap<'_>,
        nodes: &[Extent],
        config: LayoutConfig,
    ) -> Result<Self, LayoutError> {
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return Err(LayoutError::Nodes { count: nodes.len() });
        }
        let mut past = Pfn::new(0);
        for (node, &span) in nodes.iter().enumerate() {
            past = match span.checked_end() {
                Some(end) if span.start >= past => end,
                _ => return Err(LayoutError::NodeOrder { node, span }),
            };
        }
        for area in map.areas() {
            let mut rest = *area;
            for node in nodes.iter().filter(|node| node.overlaps(*area)) {
                if node.start > rest.start {
                    break;
                }
                let past = node.end().min(rest.end());
                rest = Extent::between(past, rest.end());
            }
            if !rest.is_empty() {
                return Err(LayoutError::NoNode { frame: rest.start });
            }
        }
        let ways = match config.interleaving {
            Interleaving::None => 1,
            Interleaving::TwoWay => 2,
        };
        let banks = Grid::new(map.span(), config.bank_frames.saturating_mul(ways));
        let sections = Grid::new(map.span(), config.section_frames);
        let mut layout = Self {
            zones: [LayoutZone {
                node: 0,
                kind: ZoneKind::Dma,
                span: Extent::default(),
                present_frames: 0,
            }; ZONES_MAX],
            zone_count: 0,
            node_count: nodes.len(),
            banks: banks.ok_or(LayoutError::BankFrames { frames: config.bank_frames })?,
            sections: sections
                .ok_or(LayoutError::SectionFrames { frames: config.section_frames })?,
        };
        for (node, &span) in nodes.iter().enumerate() {
            layout.add_node(map, node, span, config.movable_frames_per_node)?;
        }
        Ok(layout)
    }

    fn add_node(
        &mut self,
        map: &MemoryMap<'_>,
        node: usize,
        span: Extent,
        movable_frames: u64,
    ) -> Result<(), LayoutError> {
        let within = |start: u64, end: u64| {
            present(map, Extent::between(Pfn::new(start), Pfn::new(end)).intersect(span))
        };
        let borders = [0, DMA_END, DMA32_END, u64::MAX];
        let before = self.zone_count;
        for (kind, border) in ZoneKind::ALL.into_iter().zip(borders.windows(2)) {
            if let Some((span, present_frames)) = within(border[0], border[1]) {
                self.push(LayoutZone { node, kind, span, present_frames });
            }
        }
        if self.zone_count == before {
            return Err(LayoutError::EmptyNode { node });
        }
        if movable_frames == 0 {
            return Ok(());
        }
        let highest = self.zones[self.zone_count - 1];
        let start = last_frames(map, highest.span, movable_frames).next_multiple_of(UNIT_FRAMES);
        let Some((span, present_frames)) = within(start, highest.span.end().raw()) else {
            return Ok(());
        };
        match within(highest.span.start.raw(), start) {
            Some((below, below_frames)) => {
                let zone = &mut self.zones[self.zone_count - 1];
                (zone.span, zone.present_frames) = (below, below_frames);
            }
            None => self.zone_count -= 1,
        }
        self.push(LayoutZone { node, kind: ZoneKind::Movable, span, present_frames });
        Ok(())
    }

    fn push(&mut self, zone: LayoutZone) {
        self.zones[self.zone_count] = zone;
        self.zone_count += 1;
    }

    /// Returns the number of nodes.
    #[inline]
    pub fn nodes(&self) -> usize {
        self.node_count
    }

    /// The zones that have frames, by node and then by kind.
    #[inline]
    pub fn zones(&self) -> &[LayoutZone] {
        &self.zones[..self.zone_count]
    }

    /// The zone in whose span a frame lies. O(z) for z zones.
    pub fn zone_of(&self, frame: Pfn) -> Option<usize> {
        self.zones().iter().position(|zone| zone.span.contains(frame))
    }

    /// In which zones a request from `node` looks, in this order: the node's
    /// own from `highest` downwards, then those of the next nodes. The kernel
    /// sorts nodes by distance; between equally distant ones it goes on from
    /// the own number, as here.
    pub fn zonelist(&self, node: usize, highest: ZoneKind) -> impl Iterator<Item = usize> {
        let nodes = (0..self.node_count).map(move |nth| (node + nth) % self.node_count);
        nodes.flat_map(move |node| {
            let fits = move |zone: &LayoutZone| zone.node == node && zone.kind <= highest;
            (0..self.zone_count).rev().filter(move |at| fits(&self.zones[*at]))
        })
    }

    /// Returns the number of banks, from the one with the first frame to the
    /// one with the last.
    #[inline]
    pub fn banks(&self) -> usize {
        self.banks.count
    }

    /// Frames of a bank: of a pair, if interleaved.
    #[inline]
    pub fn bank_frames(&self) -> u64 {
        self.banks.frames
    }

    /// The bank around a frame; `None` before the first and beyond the last.
    #[inline]
    pub fn bank_of(&self, frame: Pfn) -> Option<usize> {
        self.banks.of(frame)
    }

    /// The frames of a bank, holes included.
    pub fn bank(&self, bank: usize) -> Option<Extent> {
        self.banks.get(bank)
    }

    /// Returns true if a bank has frames of more than one zone. O(z) for z
    /// zones.
    pub fn bank_crosses_zones(&self, bank: usize) -> bool {
        self.bank(bank).is_some_and(|bank| self.crosses_zones(bank))
    }

    /// Returns the number of sections, from the one with the first frame to the
    /// one with the last.
    #[inline]
    pub fn sections(&self) -> usize {
        self.sections.count
    }

    /// Frames of a section.
    #[inline]
    pub fn section_frames(&self) -> u64 {
        self.sections.frames
    }

    /// The section around a frame; `None` before the first and beyond the last.
    #[inline]
    pub fn section_of(&self, frame: Pfn) -> Option<usize> {
        self.sections.of(frame)
    }

    /// The frames of a section, holes included.
    pub fn section(&self, section: usize) -> Option<Extent> {
        self.sections.get(section)
    }

    /// Returns true if an extent has frames of more than one zone. O(z) for z
    /// zones.
    pub fn crosses_zones(&self, extent: Extent) -> bool {
        self.zones().iter().filter(|zone| zone.span.overlaps(extent)).count() > 1
    }
}

/// The span and the number of the map's frames in `extent`; `None` if there are
/// none.
fn present(map: &MemoryMap<'_>, extent: Extent) -> Option<(Extent, u64)> {
    let mut found: Option<(Extent, u64)> = None;
    for part in map.areas().iter().map(|area| area.intersect(extent)) {
        if !part.is_empty() {
            let (span, count) = found.unwrap_or((part, 0));
            found = Some((Extent::between(span.start, part.end()), count + part.count));
        }
    }
    found
}

/// From which frame on `span` has `count` frames of the map, or all that it has.
fn last_frames(map: &MemoryMap<'_>, span: Extent, count: u64) -> u64 {
    let mut rest = count;
    for area in map.areas().iter().rev().filter(|area| area.overlaps(span)) {
        let part = area.intersect(span);
        if part.count >= rest {
            return part.end().raw() - rest;
        }
        rest -= part.count;
    }
    span.start.raw()
}

/// The paper's machines. Each has the hole below 4 GiB in which a PC's devices
/// are addressed, and the one below 1 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LayoutPreset {
    /// 4 GiB in one node.
    FourGib,
    /// 32 GiB in two nodes of 16 GiB.
    ThirtyTwoGib,
}

const fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(PhysAddr::new(start), end - start)
}

const fn span(start: u64, end: u64) -> Extent {
    Extent::new(Pfn::new(start >> BASE_PAGE_SHIFT), (end - start) >> BASE_PAGE_SHIFT)
}

const GIB: u64 = 1 << 30;
const LOW_END: u64 = 0x9_f000;
const HIGH_START: u64 = 0x10_0000;

impl LayoutPreset {
    /// The usable memory, as firmware would report it.
    pub const fn ranges(self) -> &'static [ByteRange] {
        match self {
            Self::FourGib => {
                const { &[range(0x1000, LOW_END), range(HIGH_START, 3 * GIB), range(4 * GIB, 5 * GIB)] }
            }
            Self::ThirtyTwoGib => {
                const { &[range(0x1000, LOW_END), range(HIGH_START, 3 * GIB), range(4 * GIB, 33 * GIB)] }
            }
        }
    }

    /// The spans of the nodes.
    pub const fn nodes(self) -> &'static [Extent] {
        match self {
            Self::FourGib => const { &[span(0, 5 * GIB)] },
            Self::ThirtyTwoGib => const { &[span(0, 17 * GIB), span(17 * GIB, 33 * GIB)] },
        }
    }
}
