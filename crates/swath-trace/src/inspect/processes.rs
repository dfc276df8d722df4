//! The anonymous memory of processes: how long its runs of frames are.

use serde::Serialize;

use crate::histogram::Histogram;
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
}

/// Processes with anonymous memory, and how many others this user may not look into.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Processes {
    /// Those that could be read, the largest first.
    pub seen: Vec<ProcessMemory>,
    /// Those that this user may not look into.
    pub hidden: u64,
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

    use super::{ProcessMemory, Processes, RunLengths};
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
        let mut runs = RunLengths::default();
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
            })?;
        }
        Ok(ProcessMemory { pid: process.pid(), name, cgroup, pages, huge_pages, runs: runs.end() })
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
