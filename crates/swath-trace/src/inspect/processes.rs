//! The anonymous memory of processes: how long its runs of frames are.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::Serialize;

use crate::histogram::Histogram;
use crate::inspect::memory::{HUGE_FRAMES, MachineMemory, Unit};
use crate::machine::CaptureError;

/// Anonymous memory of one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProcessMemory {
    /// The process's number.
    pub pid: i32,
    /// The program's name, of at most 15 bytes.
    pub name: String,
    /// The control group in the unified hierarchy, or else in the first that the kernel names.
    pub cgroup: String,
    /// Anonymous pages in memory, those of hugetlbfs that are the process's own among them.
    pub pages: u64,
    /// Of these the pages that the process's table maps as huge pages.
    pub huge_pages: u64,
    /// The lengths of its runs: pages that follow one another in frames that follow one another,
    /// of any alignment. Nothing without the right to see frame numbers (`CAP_SYS_ADMIN`).
    pub runs: Option<Histogram>,
    /// The huge pages that it is in the way of, once [`judge`](Processes::judge) has told.
    pub in_the_way: Option<InTheWay>,
    /// Its pages in each unit.
    #[serde(skip)]
    units: Units,
}

/// Pages of 2 MiB that could be had but for frames that can be moved, some of them a process's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct InTheWay {
    /// Such pages with frames of the process.
    pub places: u64,
    /// Of these the pages in which no frame is in use but the process's.
    pub alone: u64,
}

impl ProcessMemory {
    /// What it is in the way of. O(u·log U) for the u units of 2 MiB that it has pages in, and U of the machine.
    fn judged(&self, memory: &MachineMemory) -> InTheWay {
        let mut found = InTheWay::default();
        for (&number, &pages) in &self.units.counts {
            if let Some(used) = memory.unit(number).and_then(Unit::frames_to_move) {
                found.places += 1;
                found.alone += u64::from(pages >= used);
            }
        }
        found
    }
}

/// Processes with anonymous memory, and how many others this user may not look into.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Processes {
    /// Those that could be read, the largest first.
    pub seen: Vec<ProcessMemory>,
    /// Those that this user may not look into.
    pub hidden: u64,
}

impl Processes {
    /// Tells for each process which of these huge pages it is in the way of, where its frames are known. The
    /// two looks were not at one moment: it is right but for what has changed between them.
    pub fn judge(&mut self, memory: &MachineMemory) {
        for process in self.seen.iter_mut().filter(|process| process.runs.is_some()) {
            process.in_the_way = Some(process.judged(memory));
        }
    }
}

/// Looks at every process of this machine. O(pages of memory in use); a process that ends
/// meanwhile is left out.
///
/// # Errors
/// [`CaptureError`] if there is no list of processes.
pub fn processes() -> Result<Processes, CaptureError> {
    #[cfg(target_os = "linux")]
    return linux::processes().map_err(|error| CaptureError::Io {
        path: "/proc".into(),
        source: std::io::Error::other(error),
    });
    #[cfg(not(target_os = "linux"))]
    Err(CaptureError::Unsupported { os: std::env::consts::OS })
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::path::Path;

    use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process, all_processes};
    use procfs::{ProcError, ProcResult};
    use swath_arch::BASE_PAGE_BYTES;

    use super::{ProcessMemory, Processes, RunLengths, Units};
    use crate::inspect::pagemap::PageMap;

    pub(super) fn processes() -> ProcResult<Processes> {
        let mut processes = Processes::default();
        for process in all_processes()? {
            match process.and_then(|process| look(&process)) {
                Ok(memory) if memory.pages > 0 => processes.seen.push(memory),
                Err(ProcError::PermissionDenied(_)) => processes.hidden += 1,
                Err(ProcError::Io(error, path)) if !has_ended(&error) => {
                    return Err(ProcError::Io(error, path));
                }
                // A kernel's thread, or a process that has ended.
                Ok(_) | Err(_) => {}
            }
        }
        processes.seen.sort_by_key(|memory| (std::cmp::Reverse(memory.pages), memory.pid));
        Ok(processes)
    }

    fn has_ended(error: &io::Error) -> bool {
        error.raw_os_error() == Some(libc::ESRCH)
    }

    fn look(process: &Process) -> ProcResult<ProcessMemory> {
        let name = process.stat()?.comm;
        let groups = process.cgroups()?.0;
        let group = groups.iter().find(|group| group.hierarchy == 0).or(groups.first());
        let cgroup = group.map(|group| group.pathname.clone()).unwrap_or_default();
        let (mut pages, mut huge_pages) = (0, 0);
        let (mut runs, mut units) = (RunLengths::default(), Units::default());
        let mut table = PageMap::open(format!("/proc/{}/pagemap", process.pid()).as_ref())?;
        // What the kernel sums up of an area takes it as long as the area's words, so it is asked
        // only where all words of an area that has any anonymous page have to be read.
        let areas = match table.can_scan() {
            true => process.maps()?,
            false => process.smaps()?,
        };
        for area in areas.iter().filter(|area| may_be_anonymous(area)) {
            let sum = |key| area.extension.map.get(key).map(|bytes| bytes / BASE_PAGE_BYTES);
            huge_pages += sum("AnonHugePages").unwrap_or(0);
            if sum("Anonymous") == Some(0) {
                continue;
            }
            let [start, end] = [area.address.0, area.address.1].map(|at| at / BASE_PAGE_BYTES);
            table.anonymous(start..end, &mut |run| {
                pages += run.count;
                huge_pages += if run.is_huge { run.count } else { 0 };
                runs.add(run.page, run.frame, run.count);
                units.add(run.frame, run.count);
            })?;
        }
        let (pid, runs) = (process.pid(), runs.end());
        Ok(ProcessMemory { pid, name, cgroup, pages, huge_pages, runs, in_the_way: None, units })
    }

    /// Returns false of shared areas, of those that the kernel lends, and of a device's, whose frames
    /// belong to no process.
    fn may_be_anonymous(area: &MemoryMap) -> bool {
        let not_devices = ["/dev/zero", "/dev/shm", "/dev/hugepages"];
        let is_device = |path: &Path| {
            path.starts_with("/dev") && !not_devices.iter().any(|other| path.starts_with(other))
        };
        area.perms.contains(MMPermissions::PRIVATE)
            && match &area.pathname {
                MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall => false,
                MMapPath::Other(name) => !name.starts_with("vvar"),
                MMapPath::Path(path) => !is_device(path),
                _ => true,
            }
    }
}

/// Pages of a process in units of 2 MiB.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Units {
    counts: HashMap<u64, u64, RandomState>,
}

impl Units {
    fn add(&mut self, frame: u64, count: u64) {
        let (mut at, end) = (frame, frame.saturating_add(count));
        while at < end {
            let unit = at / HUGE_FRAMES;
            let part = (HUGE_FRAMES - at % HUGE_FRAMES).min(end - at);
            *self.counts.entry(unit).or_default() += part;
            at += part;
        }
    }
}

/// Puts runs together.
#[derive(Default)]
struct RunLengths {
    lengths: Histogram,
    /// The page and the frame that would continue the run, and its length.
    next: (u64, u64),
    len: u64,
    /// Whether a frame's number was told: without the right to it, it is 0.
    is_known: bool,
}

impl RunLengths {
    fn add(&mut self, page: u64, frame: u64, count: u64) {
        self.is_known |= frame != 0;
        if self.len > 0 && self.next != (page, frame) {
            self.lengths.add(self.len);
            self.len = 0;
        }
        self.len += count;
        self.next = (page + count, frame + count);
    }

    fn end(mut self) -> Option<Histogram> {
        if self.len > 0 {
            self.lengths.add(self.len);
        }
        (self.is_known || self.lengths.count == 0).then_some(self.lengths)
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use swath_arch::BASE_PAGE_BYTES;

    #[test]
    fn a_run_ends_where_page_or_frame_does_not_follow() {
        let mut runs = RunLengths::default();
        for (page, frame) in [(1, 10), (2, 11), (3, 12), (5, 13), (6, 14), (7, 20), (8, 19)] {
            runs.add(page, frame, 1);
        }
        let lengths = runs.end().unwrap();
        assert_eq!((lengths.count, lengths.sum, lengths.largest), (4, 7, 3));
    }

    #[test]
    fn without_the_right_to_see_frames_runs_are_unknown() {
        let mut runs = RunLengths::default();
        (1..100).for_each(|page| runs.add(page, 0, 1));
        assert_eq!(runs.end(), None);
    }

    #[test]
    fn a_process_is_in_the_way_where_nothing_else_is() {
        use swath_arch::PhysAddr;

        use crate::machine::FrameKind::{Anon, File, Free, LargeFolio, Slab};
        use crate::machine::{MachineFacts, RamRange, Snapshot};
        // Its own alone; beside a file's; beside slab; a huge page; half of the RAM of a unit.
        let kinds = [
            (Free, 500),
            (Anon, 12),
            (Anon, 8),
            (File, 2),
            (Free, 502),
            (Anon, 511),
            (Slab, 1),
            (LargeFolio, 512),
            (Anon, 256),
        ];
        let frames = kinds.iter().map(|&(_, count)| count).sum::<u64>();
        let ram = RamRange { start: PhysAddr::new(0), len_bytes: frames * BASE_PAGE_BYTES };
        let snapshot = Snapshot::new(MachineFacts::default(), vec![ram], kinds).unwrap();
        let mut units = Units::default();
        // A run from one unit into the next, and what has no RAM.
        [(500, 20), (1024, 511), (1536, 512), (2048, 256), (1 << 40, 3)]
            .into_iter()
            .for_each(|(frame, count)| units.add(frame, count));
        let process = ProcessMemory {
            pid: 1,
            name: "it".into(),
            cgroup: "/".into(),
            pages: 0,
            huge_pages: 0,
            runs: Some(Histogram::default()),
            in_the_way: None,
            units,
        };
        let hidden = ProcessMemory { runs: None, ..process.clone() };
        let mut processes = Processes { seen: vec![process, hidden], hidden: 0 };
        processes.judge(&MachineMemory::of(&snapshot));
        assert_eq!(processes.seen[0].in_the_way, Some(InTheWay { places: 2, alone: 1 }));
        assert_eq!(processes.seen[1].in_the_way, None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_among_them() {
        let me = std::process::id() as i32;
        let filled = vec![1u8; 8 << 20];
        let processes = processes().unwrap();
        let mine = processes.seen.iter().find(|memory| memory.pid == me).unwrap();
        assert!(mine.pages >= filled.len() as u64 / BASE_PAGE_BYTES, "{mine:?}");
        if let Some(runs) = &mine.runs {
            // Other threads of the tests go on meanwhile.
            assert!(runs.sum >= filled.len() as u64 / BASE_PAGE_BYTES, "{mine:?}");
        }
    }
}
