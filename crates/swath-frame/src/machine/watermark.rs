//! Watermarks: the frames that a zone keeps back, and the lengths of its
//! per-CPU lists: the kernel's arithmetic (6.18), in whole frames.

use crate::layout::{Layout, ZONES_MAX, ZoneKind};

/// `watermark_scale_factor`: the distance between watermarks is at least so
/// many ten-thousandths of the zone.
const SCALE: u64 = 10;

/// Up to which order per-CPU lists are kept.
pub const LIST_ORDER_MAX: u32 = 3;

/// The order of huge pages, which have per-CPU lists too.
pub const HUGE_ORDER: u32 = 9;

/// The memory that the kernel keeps free by default, in KiB, for a machine
/// whose zones have `buffer_frames` frames, counted without the Movable ones:
/// the root of 16 times the memory, from 128 KiB to 256 MiB.
pub const fn min_free_kib(buffer_frames: u64) -> u64 {
    let root = (buffer_frames.saturating_mul(4 * 16)).isqrt();
    if root < 128 {
        128
    } else if root > 256 << 10 {
        256 << 10
    } else {
        root
    }
}

/// Returns the value to which the kernel raises that where transparent huge
/// pages are on, so that pageblocks of different mobility need not be mixed: 11
/// pageblocks of 2^9 frames for each zone, but no more than a twentieth of the
/// memory.
pub const fn min_free_huge_kib(buffer_frames: u64, zones: u64) -> u64 {
    let recommended = (11 << HUGE_ORDER) * zones;
    let frames = if recommended < buffer_frames / 20 { recommended } else { buffer_frames / 20 };
    let kib = frames * 4;
    let least = min_free_kib(buffer_frames);
    if kib > least { kib } else { least }
}

/// The marks of one zone, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermarks {
    /// Only urgent requests take what is left below.
    pub min: u64,
    /// Below this, the kernel starts to reclaim; a request first looks for a
    /// zone above.
    pub low: u64,
    /// The kernel reclaims until so much is free.
    pub high: u64,
    /// Frames that requests which could have used a higher zone leave besides,
    /// by the highest kind that they may use.
    pub reserve: [u64; ZoneKind::ALL.len()],
}

/// The marks of every zone of `layout`, whose zones now have `managed` frames,
/// if `min_free_kib` are to be kept free.
///
/// Each zone has its share of the minimum by its size; the reserve against
/// requests for higher zones is the higher zones' frames of the same node over
/// 256, or 32 for the Normal zone. O(z²) for z zones.
pub fn watermarks(
    layout: &Layout,
    managed: impl Fn(usize) -> u64,
    min_free_kib: u64,
) -> [Watermarks; ZONES_MAX] {
    let zones = layout.zones();
    let min_frames = min_free_kib / 4;
    let lowmem: u64 =
        (0..zones.len()).filter(|zone| zones[*zone].kind != ZoneKind::Movable).map(&managed).sum();
    let mut marks = [Watermarks::default(); ZONES_MAX];
    for (at, zone) in zones.iter().enumerate() {
        let frames = managed(at);
        let share = u128::from(min_frames) * u128::from(frames) / u128::from(lowmem.max(1));
        let share = share as u64;
        let min =
            if zone.kind == ZoneKind::Movable { (frames / 1024).clamp(32, 128) } else { share };
        let gap = (share / 4).max(frames / 10_000 * SCALE + frames % 10_000 * SCALE / 10_000);
        let ratio = match zone.kind {
            ZoneKind::Dma | ZoneKind::Dma32 => 256,
            ZoneKind::Normal => 32,
            ZoneKind::Movable => u64::MAX,
        };
        let above = |highest: ZoneKind| -> u64 {
            let is_above = |other: &usize| {
                let other = &zones[*other];
                other.node == zone.node && other.kind > zone.kind && other.kind <= highest
            };
            let frames: u64 = (0..zones.len()).filter(is_above).map(&managed).sum();
            frames / ratio
        };
        marks[at] = Watermarks {
            min,
            low: min + gap,
            high: min + 2 * gap,
            reserve: ZoneKind::ALL.map(|highest| if frames == 0 { 0 } else { above(highest) }),
        };
    }
    marks
}

/// Returns the number of frames that move at once between a zone of `managed`
/// frames and a per-CPU list: a 4096th of the zone, at most 64, then one less
/// than the power of two at or below one and a half times that.
pub const fn list_batch(managed: u64) -> u32 {
    let quarter = (if managed >> 10 < 256 { managed >> 10 } else { 256 }) / 4;
    let batch = if quarter < 1 { 1 } else { quarter };
    let rounded = (batch + batch / 2).ilog2();
    let batch = (1_u32 << rounded) - 1;
    if batch < 1 { 1 } else { batch }
}

/// Returns the number of frames that the per-CPU lists of one CPU and zone
/// hold: the zone's low watermark, shared by the node's CPUs, but at least four
/// batches.
///
/// The kernel moves this mark up, to an eighth of the zone, while a CPU takes
/// and gives much in turn, and lets it decay by a clock. Here it stays at this
/// minimum.
pub const fn list_high(low: u64, cpus: usize, batch: u32) -> u32 {
    let share = low / if cpus < 1 { 1 } else { cpus as u64 };
    let least = batch as u64 * 4;
    let high = if share > least { share } else { least };
    if high > 1 << 30 { 1 << 30 } else { high as u32 }
}
