//! A kernel's own account of its memory, which stands before a recording.

use std::io::Read;

use serde::Serialize;

use crate::container::{Content, FileError, Misfit, check_name, put_name};
use crate::input::put_number;

/// The most zones.
pub const ZONES_MAX: usize = 1 << 12;

/// One zone of the kernel's allocator, from `/proc/zoneinfo`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ZoneFacts {
    /// The NUMA node.
    pub node: u64,
    /// `DMA`, `Normal`, …
    pub name: String,
    /// The zone's first frame number.
    pub start_frame: u64,
    /// Frames from the first to the last, holes included.
    pub spanned_frames: u64,
    /// Frames without the holes.
    pub present_frames: u64,
    /// Frames given to the buddy allocator so far.
    pub managed_frames: u64,
    /// Frames free in the buddy allocator.
    pub free_frames: u64,
    /// Free frames in the per-CPU lists.
    pub per_cpu_frames: u64,
}

/// Kernel's account of its memory, for judging the frames. Names nobody:
/// neither host nor user nor time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MachineFacts {
    /// `uname -r`.
    pub kernel_release: String,
    /// `MemTotal` of `/proc/meminfo`, in frames.
    pub total_frames: u64,
    /// `MemFree` of `/proc/meminfo`, in frames. Where it exceeds
    /// `buddy_frames`, the kernel counts frames as free that it has not
    /// initialised yet.
    pub free_frames: u64,
    /// The sum over `/proc/buddyinfo`, in frames.
    pub buddy_frames: u64,
    /// The zones, in the kernel's order.
    pub zones: Vec<ZoneFacts>,
}

impl MachineFacts {
    /// Takes over the frames in the lists of processors where a later account has more of them. Frames that are read
    /// one after the other, between the two, may have lain there at any time.
    pub(crate) fn raise_lists(&mut self, later: &[ZoneFacts]) {
        for zone in &mut self.zones {
            let is_same = |other: &&ZoneFacts| (other.node, &other.name) == (zone.node, &zone.name);
            if let Some(other) = later.iter().find(is_same) {
                zone.per_cpu_frames = zone.per_cpu_frames.max(other.per_cpu_frames);
            }
        }
    }
}

/// Returns the reason why no file can hold them, if there is one.
pub(crate) fn check_facts(facts: &MachineFacts) -> Result<(), Misfit> {
    if facts.zones.len() > ZONES_MAX {
        return Err("more zones than the format holds");
    }
    for name in facts.zones.iter().map(|zone| &zone.name).chain([&facts.kernel_release]) {
        check_name(name.as_bytes())?;
    }
    Ok(())
}

/// Reads what [`put_facts`] writes.
pub(crate) fn read_facts<R: Read>(content: &mut Content<R>) -> Result<MachineFacts, FileError> {
    let mut facts = MachineFacts {
        kernel_release: content.name("the kernel release")?,
        total_frames: content.number("the frames in all")?,
        free_frames: content.number("the free frames")?,
        buddy_frames: content.number("the buddy allocator's frames")?,
        zones: Vec::new(),
    };
    for _ in 0..content.count(ZONES_MAX, "the number of zones")? {
        facts.zones.push(ZoneFacts {
            node: content.number("a zone's node")?,
            name: content.name("a zone's name")?,
            start_frame: content.number("a zone's start")?,
            spanned_frames: content.number("a zone's span")?,
            present_frames: content.number("a zone's present frames")?,
            managed_frames: content.number("a zone's managed frames")?,
            free_frames: content.number("a zone's free frames")?,
            per_cpu_frames: content.number("a zone's per-CPU frames")?,
        });
    }
    Ok(facts)
}

/// Appends the facts as a file has them.
pub(crate) fn put_facts(out: &mut Vec<u8>, facts: &MachineFacts) {
    put_name(out, &facts.kernel_release);
    for number in [facts.total_frames, facts.free_frames, facts.buddy_frames] {
        put_number(out, number);
    }
    put_number(out, facts.zones.len() as u64);
    for zone in &facts.zones {
        put_number(out, zone.node);
        put_name(out, &zone.name);
        for number in [
            zone.start_frame,
            zone.spanned_frames,
            zone.present_frames,
            zone.managed_frames,
            zone.free_frames,
            zone.per_cpu_frames,
        ] {
            put_number(out, number);
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn lists_are_as_long_as_they_were_at_any_time() {
        let zone = |node, name: &str, per_cpu_frames| ZoneFacts {
            node,
            name: name.to_owned(),
            per_cpu_frames,
            ..ZoneFacts::default()
        };
        let facts =
            |zones: &[ZoneFacts]| MachineFacts { zones: zones.to_vec(), ..MachineFacts::default() };
        let mut before =
            facts(&[zone(0, "DMA32", 7), zone(0, "Normal", 100), zone(1, "Normal", 9)]);
        before.raise_lists(&[zone(0, "Normal", 400), zone(0, "DMA32", 3)]);
        assert_eq!(
            before.zones.iter().map(|zone| zone.per_cpu_frames).collect::<Vec<_>>(),
            [7, 400, 9]
        );
    }
}
