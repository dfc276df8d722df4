//! Programs on the kernel: every step of theirs made, what is measured added up.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use swath_arch::{BASE_PAGE_BYTES, BASE_PAGE_SHIFT, Format, PageRange, VirtAddr, Vpn};
use swath_hw::{MemoryAccess, Operation, Translate};

use crate::papers::superpages::kernel::{Kernel, KernelError, KernelStats};
use crate::papers::superpages::process::{Action, Step};
use crate::papers::superpages::processors::Shootdowns;
use swath_trace::access::{AccessKind, MapBacking, TraceEvent};

/// The cost of the measured parts of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Accesses made, each line that one touches.
    pub accesses: u64,
    /// Cycles of the core, the kernel's among them.
    pub cycles: u64,
    /// Cycles of the kernel's costs.
    pub kernel_cycles: u64,
    /// Walks: misses of all TLBs.
    pub walks: u64,
    /// Cycles in walks.
    pub walk_cycles: u64,
    /// Reads and writes of the memory that had to close another row of their bank.
    pub row_conflicts: u64,
    /// Page faults.
    pub faults: u64,
    /// Frames copied.
    pub copies: u64,
    /// Frames reserved and not populated, when the last measured part ended.
    pub reserved_frames: u64,
    /// Frames that tables took at most, until then.
    pub table_frames_max: u64,
    /// Descriptors cleaned to memory.
    pub cleaned: u64,
    /// Ticks of the timers.
    pub ticks: u64,
    /// Flushes of TLBs.
    pub shootdowns: Shootdowns,
    /// All that was done until then, also what is not measured.
    pub total: KernelStats,
}

impl Cost {
    /// Adds what stands for `weight` times as much.
    fn add(&mut self, stats: KernelStats, weight: u64) {
        let core = stats.processor;
        let sums = [
            (&mut self.accesses, core.reads + core.writes + core.fetches),
            (&mut self.cycles, core.cycles),
            (&mut self.kernel_cycles, stats.kernel_cycles),
            (&mut self.walks, core.walks),
            (&mut self.walk_cycles, core.walk_cycles),
            (&mut self.row_conflicts, core.row_conflicts),
            (&mut self.faults, stats.faults),
            (&mut self.copies, stats.copies),
            (&mut self.cleaned, stats.cleaned),
            (&mut self.ticks, stats.ticks),
            (&mut self.shootdowns.flushes, stats.shootdowns.flushes),
            (&mut self.shootdowns.remote, stats.shootdowns.remote),
            (&mut self.shootdowns.remote_tlbs, stats.shootdowns.remote_tlbs),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more.saturating_mul(weight));
        }
        self.reserved_frames = stats.reserved_frames;
        self.table_frames_max = self.table_frames_max.max(stats.table_frames_max);
        self.total = stats;
    }
}

/// A process of the program, or a thread.
#[derive(Clone, Copy)]
struct Runner {
    /// The kernel's process.
    id: usize,
    /// Its processor: processes and threads are dealt out in turn.
    processor: usize,
    is_thread: bool,
}

/// Makes all steps, and gives what those between [`Action::Begin`] and
/// [`Action::End`] cost. `line_bytes` is a cache line's length: an access that
/// crosses lines is made in each.
///
/// What a recording does not tell is left open by it: pages that move
/// ([`TraceEvent::Move`]) are faulted in anew.
///
/// # Errors
/// [`KernelError`].
pub fn execute<T: Translate, E: std::fmt::Display>(
    kernel: &mut Kernel<'_, T>,
    steps: impl Iterator<Item = Result<Step, E>>,
    line_bytes: u64,
) -> Result<Cost, KernelError> {
    let mut runners: HashMap<u32, Runner, FixedState> = HashMap::default();
    let mut started = 0;
    let mut start = |id: usize, is_thread: bool| {
        started += 1;
        Runner { id, processor: started - 1, is_thread }
    };
    runners.insert(0, start(kernel.spawn()?, false));
    let mut cost = Cost::default();
    let mut measured = None;
    for step in steps {
        let step = step.map_err(|error| KernelError::Machine(error.to_string()))?;
        let Runner { id, processor, is_thread } = *runners
            .get(&step.process)
            .ok_or_else(|| KernelError::Machine(format!("no process {}", step.process)))?;
        kernel.act_on(processor);
        match step.action {
            Action::Access { addr, len_bytes, kind, dependent, compute_cycles } => {
                let operation = match kind {
                    AccessKind::Read => Operation::Read,
                    AccessKind::Write => Operation::Write,
                    AccessKind::Fetch => Operation::Fetch,
                };
                let first = MemoryAccess { addr, operation, depends: dependent, compute_cycles };
                kernel.access(id, &first)?;
                let last = addr.raw() + u64::from(len_bytes) - 1;
                let mut line = (addr.raw() / line_bytes + 1) * line_bytes;
                while line <= last {
                    let addr = VirtAddr::new(line);
                    kernel.access(id, &MemoryAccess::new(addr, operation))?;
                    line += line_bytes;
                }
            }
            Action::Memory(event) => apply(kernel, id, event)?,
            Action::Fork { child } => {
                runners.insert(child, start(kernel.fork(id)?, false));
            }
            Action::Thread { child } => {
                runners.insert(child, start(id, true));
            }
            Action::Exit => {
                if !is_thread {
                    kernel.exit(id)?;
                }
                runners.remove(&step.process);
            }
            Action::Begin { weight } => {
                kernel.reset_stats();
                measured = Some(weight);
            }
            Action::End => {
                if let Some(weight) = measured.take() {
                    cost.add(kernel.stats()?, weight);
                }
            }
        }
    }
    kernel.check()?;
    Ok(cost)
}

fn apply<T: Translate>(
    kernel: &mut Kernel<'_, T>,
    id: usize,
    event: TraceEvent,
) -> Result<(), KernelError> {
    match event {
        TraceEvent::Map { pages, protection, backing, shared: _ } => {
            kernel.unmap(id, pages)?;
            kernel.map(id, pages, protection.write, protection.execute, backing)
        }
        TraceEvent::Unmap { pages } => kernel.unmap(id, pages),
        TraceEvent::Protect { pages, protection } => {
            kernel.protect(id, pages, protection.write, protection.execute)
        }
        TraceEvent::Discard { pages } => kernel.discard(id, pages),
        TraceEvent::Move { from, to } => {
            let Some((writable, executable)) = kernel.permissions(id, from.start)? else {
                return Ok(());
            };
            kernel.unmap(id, from)?;
            kernel.unmap(id, to)?;
            kernel.map(id, to, writable, executable, MapBacking::Anonymous)
        }
        TraceEvent::Fork | TraceEvent::Skip { .. } => Ok(()),
    }
}

/// Bytes of a piece of a recording's address space that keeps its shape.
const CHUNK_PAGES: u64 = (64 << 20) / BASE_PAGE_BYTES;

/// Brings a recording's addresses into what a format translates: pieces of 64
/// MiB keep their place where the format has it, the others are moved there
/// from above, each as a whole. So what is contiguous and aligned stays so, but
/// for borders of pieces that were moved.
pub struct Fold {
    format: Format,
    /// Place of each moved piece.
    places: HashMap<u64, u64, FixedState>,
    /// The last place given away, from the end.
    next: u64,
}

impl Fold {
    /// For a format.
    pub fn new(format: Format) -> Self {
        let pages = 1 << (format.va_bits() - BASE_PAGE_SHIFT - u32::from(format.has_halves()));
        Self { format, places: HashMap::default(), next: pages / CHUNK_PAGES }
    }

    /// The step's addresses moved; a range that lies in several pieces becomes
    /// several steps.
    ///
    /// # Errors
    /// More pieces than there are places.
    pub fn step(&mut self, step: Step) -> Result<Vec<Step>, KernelError> {
        let Step { process, action } = step;
        let memory = |event| Step { process, action: Action::Memory(event) };
        Ok(match action {
            Action::Access { addr, len_bytes, kind, dependent, compute_cycles } => {
                let page = self.page(addr.page())?;
                let addr = page.address() + addr.page_offset();
                let action = Action::Access { addr, len_bytes, kind, dependent, compute_cycles };
                vec![Step { process, action }]
            }
            Action::Memory(TraceEvent::Map { pages, protection, backing, shared }) => self
                .pieces(pages)?
                .into_iter()
                .map(|(at, skipped)| {
                    let backing = match backing {
                        MapBacking::File { file, first_page } => {
                            MapBacking::File { file, first_page: first_page + skipped }
                        }
                        anonymous => anonymous,
                    };
                    memory(TraceEvent::Map { pages: at, protection, backing, shared })
                })
                .collect(),
            Action::Memory(TraceEvent::Unmap { pages }) => {
                let pieces = self.pieces(pages)?.into_iter();
                pieces.map(|(pages, _)| memory(TraceEvent::Unmap { pages })).collect()
            }
            Action::Memory(TraceEvent::Protect { pages, protection }) => {
                let pieces = self.pieces(pages)?.into_iter();
                pieces.map(|(pages, _)| memory(TraceEvent::Protect { pages, protection })).collect()
            }
            Action::Memory(TraceEvent::Discard { pages }) => {
                let pieces = self.pieces(pages)?.into_iter();
                pieces.map(|(pages, _)| memory(TraceEvent::Discard { pages })).collect()
            }
            Action::Memory(TraceEvent::Move { from, to }) => {
                let from = self.pieces(from)?;
                let to = self.pieces(to)?;
                match (&from[..], &to[..]) {
                    ([(from, _)], [(to, _)]) => {
                        vec![memory(TraceEvent::Move { from: *from, to: *to })]
                    }
                    _ => {
                        return Err(KernelError::Machine(
                            "the recording moves more than one piece of 64 MiB".to_owned(),
                        ));
                    }
                }
            }
            _ => vec![step],
        })
    }

    fn page(&mut self, page: Vpn) -> Result<Vpn, KernelError> {
        let (chunk, within) = (page.raw() / CHUNK_PAGES, page.raw() % CHUNK_PAGES);
        let stays = page.raw() >> 52 == 0 && self.format.is_canonical(page.address());
        let place = match self.places.get(&chunk) {
            Some(&place) => place,
            None if stays && chunk < self.next => chunk,
            None => {
                // The first piece is left free: many programs begin there.
                if self.next <= 1 {
                    return Err(KernelError::Machine(
                        "the recording has more pieces of 64 MiB than the format has places"
                            .to_owned(),
                    ));
                }
                self.next -= 1;
                self.places.insert(chunk, self.next);
                self.next
            }
        };
        Ok(Vpn::new(place * CHUNK_PAGES + within))
    }

    /// The range's pieces at their places, and how many pages come before each.
    fn pieces(&mut self, pages: PageRange) -> Result<Vec<(PageRange, u64)>, KernelError> {
        let mut pieces: Vec<(PageRange, u64)> = Vec::new();
        let mut done = 0;
        while done < pages.count {
            let page = pages.start + done;
            let count = (CHUNK_PAGES - page.raw() % CHUNK_PAGES).min(pages.count - done);
            let start = self.page(page)?;
            match pieces.last_mut() {
                Some((last, _)) if last.end() == start => last.count += count,
                _ => pieces.push((PageRange::new(start, count), done)),
            }
            done += count;
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(addr: u64) -> Step {
        let action = Action::Access {
            addr: VirtAddr::new(addr),
            len_bytes: 4,
            kind: AccessKind::Read,
            dependent: false,
            compute_cycles: 0,
        };
        Step { process: 0, action }
    }

    fn unmap(start: u64, count: u64) -> Step {
        let pages = PageRange::new(Vpn::new(start), count);
        Step { process: 0, action: Action::Memory(TraceEvent::Unmap { pages }) }
    }

    /// Pieces that the format has stay; those beyond move as a whole, the same
    /// piece always to the same place.
    #[test]
    fn pieces_keep_their_shape() {
        let mut fold = Fold::new(Format::ArmV7);
        assert_eq!(fold.step(access(0x40_1234)).unwrap(), [access(0x40_1234)]);
        let stack = 0x1f_fe00_0000;
        let top = (1 << 32) - (64 << 20);
        assert_eq!(fold.step(access(stack + 0x123)).unwrap(), [access(top + 0x200_0123)]);
        assert_eq!(fold.step(access(stack + 0x456)).unwrap(), [access(top + 0x200_0456)]);
        // A range over a border of pieces, of which the second moves elsewhere.
        let border = (0x20_0000_0000_u64 >> 12) - 1;
        let moved = fold.step(unmap(border, 3)).unwrap();
        let second = (top - (64 << 20)) >> 12;
        assert_eq!(moved, [unmap((top >> 12) + CHUNK_PAGES - 1, 1), unmap(second, 2)]);
        // Pieces side by side that stay are one range.
        assert_eq!(fold.step(unmap(CHUNK_PAGES - 1, 2)).unwrap(), [unmap(CHUNK_PAGES - 1, 2)]);
    }

    #[test]
    fn too_many_pieces() {
        let mut fold = Fold::new(Format::ArmV7);
        let far = |i: u64| access((1 << 40) + i * (64 << 20));
        let failed = (0..70).find_map(|i| fold.step(far(i)).err());
        assert!(matches!(failed, Some(KernelError::Machine(_))));
    }
}
