//! The counts of Swath's heap for devices (`linux/`).

use std::path::Path;

use serde::Serialize;

use crate::machine::CaptureError;
use crate::machine::record::optional_text;

/// Counts of Swath's heap for devices, from `/proc/swath_heap`; a member that it does not name is 0.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DeviceHeap {
    /// The allocator that decides where buffers lie: `bitmap`, `bitmap-on-demand` or `pbs`.
    pub policy: String,
    /// Bytes of its areas.
    pub total_bytes: u64,
    /// Bytes of these that the system does not have meanwhile.
    pub held_bytes: u64,
    /// Bytes of what it holds that are in no buffer.
    pub free_bytes: u64,
    /// Number of free runs.
    pub free_runs: u64,
    /// Bytes of the longest.
    pub largest_run_bytes: u64,
    /// Number of buffers.
    pub buffers: u64,
    /// Number of runs in them.
    pub buffer_runs: u64,
    /// Requests that failed since it was loaded, by why: `argument`, `frames`, `run`, `migration`.
    pub failed: Vec<(String, u64)>,
    /// Its areas.
    pub areas: Vec<HeapArea>,
}

/// Physical memory of a heap for devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct HeapArea {
    /// Its physical address.
    pub address: u64,
    /// Its bytes.
    pub len_bytes: u64,
    /// True if it was reserved at boot, and is never the system's.
    pub reserved: bool,
}

impl DeviceHeap {
    /// Reads the counts of the machine whose `/proc` stands at `proc`; `None` where there is no such heap, or it
    /// is not for this user.
    ///
    /// # Errors
    /// [`CaptureError::Io`].
    pub fn read(proc: &Path) -> Result<Option<Self>, CaptureError> {
        let text = optional_text(&proc.join("swath_heap"))?;
        Ok(text.map(|text| Self::parse(&text)))
    }

    /// A name and a value a line. Lines that this version does not know are left out.
    fn parse(text: &str) -> Self {
        let mut heap = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
            let number = value.parse::<u64>();
            let place = match name {
                "policy" => {
                    value.clone_into(&mut heap.policy);
                    continue;
                }
                "area" => {
                    heap.areas.extend(HeapArea::parse(value, words.next(), words.next()));
                    continue;
                }
                "total_bytes" => &mut heap.total_bytes,
                "held_bytes" => &mut heap.held_bytes,
                "free_bytes" => &mut heap.free_bytes,
                "free_runs" => &mut heap.free_runs,
                "largest_run_bytes" => &mut heap.largest_run_bytes,
                "buffers" => &mut heap.buffers,
                "buffer_runs" => &mut heap.buffer_runs,
                _ => {
                    if let (Some(why), Ok(count)) = (name.strip_prefix("failed_"), number) {
                        heap.failed.push((why.to_owned(), count));
                    }
                    continue;
                }
            };
            *place = number.unwrap_or(0);
        }
        heap
    }
}

impl HeapArea {
    fn parse(address: &str, len: Option<&str>, reserved: Option<&str>) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let (address, len_bytes) = (number(address)?, number(len?)?);
        Some(Self { address, len_bytes, reserved: reserved == Some("reserved") })
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn counts_are_read_by_name() {
        let text = "policy bitmap-on-demand\nunit_bytes 4096\nareas 2\ntotal_bytes 268435456\n\
            held_bytes 2097152\nfree_bytes 1048576\nfree_runs 2\nlargest_run_bytes 524288\n\
            buffers 3\nbuffer_runs 4\nfailed_argument 0\nfailed_run 7\nnews of a later version\n\
            area 0x2000000 0x2000000\narea 0x40000000 0xe000000 reserved\narea nowhere\n";
        let heap = DeviceHeap::parse(text);
        assert_eq!((&*heap.policy, heap.total_bytes), ("bitmap-on-demand", 256 << 20));
        assert_eq!((heap.held_bytes, heap.free_bytes), (2 << 20, 1 << 20));
        assert_eq!((heap.free_runs, heap.largest_run_bytes), (2, 512 << 10));
        assert_eq!((heap.buffers, heap.buffer_runs), (3, 4));
        assert_eq!(heap.failed, [("argument".to_owned(), 0), ("run".to_owned(), 7)]);
        let area = |address, len_bytes, reserved| HeapArea { address, len_bytes, reserved };
        let areas = [area(32 << 20, 32 << 20, false), area(1 << 30, 224 << 20, true)];
        assert_eq!(heap.areas, areas);
    }

    #[test]
    fn nonsense_is_no_count() {
        let text = "total_bytes -1\nheld_bytes 18446744073709551616\nfree_bytes\nbuffers x 3\n";
        assert_eq!(DeviceHeap::parse(text), DeviceHeap::default());
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(DeviceHeap::read(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join("swath_heap"), [0xff; 100]).unwrap();
        let error = DeviceHeap::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("swath_heap"), "{error}");
    }
}
