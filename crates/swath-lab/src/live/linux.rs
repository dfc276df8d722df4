//! The running Linux machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use swath_trace::inspect::MachineMemory;
use swath_trace::machine::{FrameKind, MemoryBlock, free_frames, memory_blocks, total_frames};

use crate::live::daemon::{BlockUse, Machine, OnlineFrames, Refusal};
use crate::live::error::LiveError;
use crate::live::journal::Journal;

/// The kernel's folder of memory blocks.
const BLOCKS: &str = "/sys/devices/system/memory";
/// The file that takes a number of bytes to reclaim from the whole machine (cgroup version 2).
pub const RECLAIM: &str = "/sys/fs/cgroup/memory.reclaim";
const PROC: &str = "/proc";

/// The time from one look at a block that goes offline to the next.
const LOOK: Duration = Duration::from_millis(5);

/// The subcommand of this program that writes a block's state; see [`set_memory_block`].
const SET_MEMORY_BLOCK: &str = "set-memory-block";

/// `EBUSY` and `EAGAIN`: something in the block cannot move, or not now.
const BUSY: [i32; 2] = [16, 11];

/// The switch of DAMON's reclamation of cold pages, where the kernel has it.
const DAMON: &str = "/sys/module/damon_reclaim/parameters/enabled";

/// DAMON's reclamation, switched on until this is dropped.
#[derive(Debug)]
pub struct DamonReclaim {
    before: String,
}

impl DamonReclaim {
    /// Switches it on.
    ///
    /// # Errors
    /// [`LiveError::Damon`] if the kernel has none or refuses.
    pub fn start() -> Result<Self, LiveError> {
        let failed = |source| LiveError::Damon { path: DAMON.into(), source };
        let before = fs::read_to_string(DAMON).map_err(failed)?;
        fs::write(DAMON, "Y").map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for DamonReclaim {
    fn drop(&mut self) {
        let _ = fs::write(DAMON, self.before.trim());
    }
}

/// The running machine.
pub struct Linux {
    memory: MachineMemory,
    journal: Journal,
    /// A block that takes longer stays online.
    timeout: Duration,
    stop: &'static AtomicBool,
    began: Instant,
}

impl Linux {
    /// The machine, with its memory as it was just read; offline writes that take longer than the
    /// timeout are given up, and all of it when `stop` is set.
    pub fn new(
        memory: MachineMemory,
        journal: Journal,
        timeout: Duration,
        stop: &'static AtomicBool,
    ) -> Self {
        Self { memory, journal, timeout, stop, began: Instant::now() }
    }

    /// Writes `offline` in a process of its own, which is killed when it takes too long, when memory
    /// becomes scarce or when the user interrupts: only a signal ends the kernel's attempts.
    fn write_watched(&self, file: &Path, low_frames: u64) -> Result<(), Refusal> {
        let system = |error: io::Error| Refusal::System(error.to_string());
        let program = std::env::current_exe().map_err(system)?;
        let mut child = Command::new(program)
            .args([SET_MEMORY_BLOCK.as_ref(), file.as_os_str(), "offline".as_ref()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(system)?;
        let began = Instant::now();
        let refusal = loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    return match status.code() {
                        Some(0) => Ok(()),
                        Some(code) if BUSY.contains(&code) => Err(Refusal::Busy),
                        Some(code) => Err(system(io::Error::from_raw_os_error(code))),
                        // The terminal's interrupt reaches it, too.
                        None => Err(Refusal::Interrupted),
                    };
                }
                Ok(None) => {}
                Err(error) => break system(error),
            }
            if self.stop.load(Ordering::Relaxed) {
                break Refusal::Interrupted;
            }
            if began.elapsed() > self.timeout {
                break Refusal::TimedOut;
            }
            if frames().is_ok_and(|frames| frames.free < low_frames) {
                break Refusal::Scarce;
            }
            thread::sleep(LOOK);
        };
        let killed = child.kill().and_then(|()| child.wait());
        killed.map_err(system)?;
        Err(refusal)
    }

    /// Ends the work with it; see [`Journal::close`].
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn close(self) -> Result<(), LiveError> {
        self.journal.close()
    }
}

fn state_file(number: u64) -> PathBuf {
    Path::new(BLOCKS).join(format!("memory{number}/state"))
}

fn is_offline(number: u64) -> bool {
    fs::read_to_string(state_file(number)).is_ok_and(|state| state.trim() == "offline")
}

/// The frames of this machine's memory that is online.
///
/// # Errors
/// [`LiveError`].
pub fn frames() -> Result<OnlineFrames, LiveError> {
    let proc = Path::new(PROC);
    let (total, free) = (total_frames(proc), free_frames(proc));
    Ok(OnlineFrames { total: total?, free: free? })
}

/// The use of the blocks that are online, of memory that was just read. O(frames / 512).
///
/// # Errors
/// [`LiveError`].
pub fn uses(memory: &MachineMemory) -> Result<Vec<BlockUse>, LiveError> {
    let blocks = memory_blocks(Path::new(BLOCKS))?;
    Ok(blocks.iter().filter(|block| block.is_online()).map(|block| use_of(memory, block)).collect())
}

fn use_of(memory: &MachineMemory, block: &MemoryBlock) -> BlockUse {
    let (start, end) = (block.frames.start.raw(), block.frames.end().raw());
    let zone = memory.facts().zones.iter().find(|zone| {
        let zone_end = zone.start_frame.saturating_add(zone.spanned_frames);
        zone.name == block.zone && (zone.start_frame..zone_end).contains(&start)
    });
    let of_devices = block.zone.starts_with("DMA") || block.zone == "Device";
    let mut block_use = BlockUse {
        number: block.number,
        frames: block.frames,
        in_movable_zone: block.zone == "Movable",
        can_go: block.removable && block.zone != "none" && !of_devices,
        free: 0,
        movable: 0,
        unmovable: 0,
        unmarked: 0,
        in_cpu_lists: zone.map_or(0, |zone| zone.per_cpu_frames),
    };
    for unit in memory.units_within(start..end) {
        for kind in FrameKind::ALL {
            let sum = match kind {
                FrameKind::Free => &mut block_use.free,
                FrameKind::Unknown => &mut block_use.unmarked,
                // Holes: what is not counted.
                FrameKind::Absent => continue,
                kind if kind.is_movable() => &mut block_use.movable,
                _ => &mut block_use.unmovable,
            };
            *sum += unit.count(kind);
        }
    }
    block_use
}

impl Machine for Linux {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn rest(&mut self, ns: u64) {
        thread::sleep(Duration::from_nanos(ns));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn frames(&mut self) -> Result<OnlineFrames, LiveError> {
        frames()
    }

    fn blocks(&mut self) -> Result<Vec<BlockUse>, LiveError> {
        let all = self.memory.units().len();
        self.memory.read_again(0..all)?;
        uses(&self.memory)
    }

    fn offline(&mut self, block: &BlockUse, low_frames: u64) -> Result<(), Refusal> {
        let system = |error: io::Error| Refusal::System(error.to_string());
        let number = block.number;
        let back = if block.in_movable_zone { "online_movable" } else { "online_kernel" };
        self.journal.add(number, back).map_err(system)?;
        let outcome = self.write_watched(&state_file(number), low_frames);
        // It may have gone in the moment in which it was given up.
        if is_offline(number) {
            return Ok(());
        }
        self.journal.remove(number);
        Err(outcome.err().unwrap_or(Refusal::Busy))
    }

    fn online(&mut self, number: u64) -> Result<(), Refusal> {
        self.journal.bring_online(number)
    }

    fn reclaim(&mut self, frames: u64) {
        // Less than was asked for is no failure.
        let _ = fs::write(RECLAIM, (frames << 12).to_string());
    }
}

impl Journal {
    /// Brings a block of the journal online.
    ///
    /// # Errors
    /// A [`Refusal`]; the journal still has the block.
    pub fn bring_online(&mut self, number: u64) -> Result<(), Refusal> {
        if is_offline(number) {
            let state = self.state_of(number).unwrap_or("online").to_owned();
            let written = fs::write(state_file(number), state);
            written.map_err(|error| Refusal::System(error.to_string()))?;
        }
        self.remove(number);
        Ok(())
    }
}

/// Writes a memory block's state once, and returns the system's error as exit code.
pub fn set_memory_block(file: &Path, state: &str) -> ExitCode {
    match fs::write(file, state) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.raw_os_error().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
    }
}
