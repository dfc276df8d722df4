//! The allocators whose cost is measured, and the work that they are measured
//! at.
//!
//! Both of Swath's structures are measured: the paper's ordered lists, scanned
//! from the highest order down, and the bitmaps that find the same blocks
//! without a scan.

use std::cell::RefCell;
use std::fmt::Display;
use std::hint::black_box;

use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, PageRange, SliceMemory, Vpn,
};
use swath_frame::testing::lists::{PaperLists, Steps, Watch};
use swath_frame::{BestFit, BuddyConfig, ByteRange, FrameAllocator, MemoryMap};
use swath_vm::AddressSpace;

use crate::papers::page_buddy::design::DesignFrames;
use crate::papers::page_buddy::lists::{BBS, PBS};
use crate::papers::page_buddy::setting::{BlockFrames, ContiguityBits};
use crate::papers::page_buddy::translation::{reach_frames, table_extent};
use crate::source::memory::{Allocator, Random, Source, new_allocator};
use crate::source::real::Machine;
use crate::study::grid::Value;

/// The way in which the free lists are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Structure {
    /// The paper's.
    Lists,
    /// Swath's.
    Bitmaps,
    /// That of an allocator which another crate [added](crate::papers::page_buddy::design::add).
    Own,
}

impl Structure {
    /// Those of PBS and BBS, the paper's first.
    pub(crate) const ALL: [Self; 2] = [Self::Lists, Self::Bitmaps];

    /// All of them.
    pub(crate) const WITH_OWN: [Self; 3] = [Self::Lists, Self::Bitmaps, Self::Own];

    /// Its value on the axis.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Lists => "lists",
            Self::Bitmaps => "bitmaps",
            Self::Own => "its own",
        }
    }

    /// The name of a design on it, in the figures.
    pub(crate) fn named(self, design: &str) -> String {
        match self {
            Self::Lists => format!("{design} (lists)"),
            Self::Bitmaps | Self::Own => design.to_owned(),
        }
    }
}

/// BBS whose descriptors say what is contiguous, as TLB coalescing over it
/// needs them.
pub(crate) const BBS_WRITING: &str = "BBS with contiguity";

/// PBS whose contiguity stands in the two bits that ARMv7's descriptors leave
/// free, saturated, not in a word beside each.
pub(crate) const PBS_INSIDE: &str = "PBS, contiguity in the descriptor";

/// Contiguity in a word beside each descriptor, as in the paper's other
/// studies.
const BESIDE: Coalescing = Coalescing::Pcad(ContiguityBits::Ideal(16).field());
const INSIDE: Coalescing = Coalescing::Pcad(ContiguityField::Descriptor);

/// An allocator that is measured, with what eager paging writes for it.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) design: String,
    pub(crate) structure: Structure,
    frames: DesignFrames,
    /// Lines 17 to 21 of Fig. 4.
    pub(crate) coalescing: Coalescing,
    /// True where it differs from another subject in these lines alone.
    pub(crate) eager_alone: bool,
}

impl Subject {
    /// This design on each of the structures that it has, and where the paper's own are
    /// read in two ways, their other reading: section IV-B, 5, has
    /// contiguity written by PBS and not by BBS. What is contiguous stands beside the descriptors of
    /// all others.
    pub(crate) fn of(design: &str, frames: DesignFrames, structures: &[Structure]) -> Vec<Self> {
        let (coalescing, other) = match design {
            BBS => (Coalescing::None, Some((BBS_WRITING, BESIDE))),
            PBS => (BESIDE, Some((PBS_INSIDE, INSIDE))),
            _ => (BESIDE, None),
        };
        let structures = match frames {
            DesignFrames::Buddy(_) => structures,
            // The paper's lists take the first node.
            DesignFrames::BestFit(_) => &[Structure::Bitmaps],
            DesignFrames::Own(_) => &[Structure::Own],
        };
        let mut subjects = Vec::new();
        for (nth, (design, coalescing)) in
            [(design, coalescing)].into_iter().chain(other).enumerate()
        {
            subjects.extend(structures.iter().map(|&structure| Self {
                design: design.to_owned(),
                structure,
                frames,
                coalescing,
                eager_alone: nth > 0,
            }));
        }
        subjects
    }

    /// The measured allocations.
    pub(crate) fn works(&self) -> &'static [Work] {
        if self.eager_alone { &Work::ALL[..1] } else { &Work::ALL }
    }
}

/// The measured work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Fig. 19, all of Fig. 4: a request with its page table and contiguity.
    Eager,
    /// The request alone, without lines 17 to 21 of Fig. 4.
    Request,
    /// Fig. 20: single frames.
    Demand,
}

/// The two halves of a work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Frames are allocated.
    Allocate,
    /// All of them are freed, in the order of their allocation.
    Free,
}

impl Act {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Allocate, Self::Free];
}

impl Work {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Eager, Self::Request, Self::Demand];

    /// The figure, which is also the value on the axis.
    pub(crate) const fn figure(self, act: Act) -> &'static str {
        match (self, act) {
            (Self::Eager, Act::Allocate) => "Fig. 19",
            (Self::Eager, Act::Free) => "De-allocation of Fig. 19",
            (Self::Request, Act::Allocate) => "Fig. 19, allocator alone",
            (Self::Request, Act::Free) => "De-allocation of Fig. 19, allocator alone",
            (Self::Demand, Act::Allocate) => "Fig. 20",
            (Self::Demand, Act::Free) => "De-allocation of Fig. 20",
        }
    }

    /// The title of its figure.
    pub(crate) const fn title(self, act: Act) -> &'static str {
        match (self, act) {
            (Self::Eager, Act::Allocate) => "Eager paging, page table and contiguity included",
            (Self::Eager, Act::Free) => "An eager mapping unmapped, its frames freed",
            (Self::Request, Act::Allocate) => "Eager paging, without the page table",
            (Self::Request, Act::Free) => "The blocks of a request freed, without the page table",
            (Self::Demand, Act::Allocate) => "Demand paging, a frame at a time",
            (Self::Demand, Act::Free) => "Frames freed one at a time, in their order",
        }
    }

    /// Number of operations that it consists of.
    pub(crate) const fn operations(self, demands: Demands) -> u64 {
        match self {
            Self::Eager | Self::Request => 1,
            Self::Demand => demands.demand_frames,
        }
    }
}

/// The memory of one point.
#[derive(Clone, Copy)]
pub(crate) enum Memory<'a> {
    /// Free blocks of so many frames.
    Blocks { block_frames: u64, free_frames: u64, free_share: f64 },
    /// A real machine's.
    Machine(&'a Machine),
}

impl Memory<'_> {
    fn source(&self) -> Source<'_> {
        match *self {
            Memory::Blocks { block_frames, free_frames, free_share } => {
                Source::blocks(block_frames, free_frames, free_share)
            }
            Memory::Machine(machine) => Source::Free(&machine.free),
        }
    }

    /// Its place on the x axis.
    pub(crate) fn x(&self) -> Value {
        match self {
            Memory::Blocks { block_frames, .. } => (*block_frames).into(),
            Memory::Machine(machine) => machine.name.clone().into(),
        }
    }
}

/// Frames that the work asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demands {
    /// In the one request.
    pub(crate) request_frames: u64,
    /// Single ones.
    pub(crate) demand_frames: u64,
}

/// One form of a plan's load.
pub(crate) struct Load<'a> {
    pub(crate) repeats: u64,
    pub(crate) block_frames: &'a [BlockFrames],
    pub(crate) free_frames: u64,
    pub(crate) free_share: f64,
    pub(crate) demands: Demands,
}

impl Load<'_> {
    /// The memory of each point: a real machine's, if there is one.
    pub(crate) fn memories<'a>(&self, machine: Option<&'a Machine>) -> Vec<Memory<'a>> {
        let (free_frames, free_share) = (self.free_frames, self.free_share);
        match machine {
            Some(machine) => vec![Memory::Machine(machine)],
            None => {
                let of = |size: &BlockFrames| {
                    let block_frames = size.get();
                    Memory::Blocks { block_frames, free_frames, free_share }
                };
                self.block_frames.iter().map(of).collect()
            }
        }
    }
}

/// A fault in words.
pub(crate) type Fault = String;

fn fault(error: impl Display) -> Fault {
    error.to_string()
}

impl Subject {
    /// Hands `visit` the allocator over this memory.
    ///
    /// # Errors
    /// The fault of the memory, or that of `visit`.
    pub(crate) fn over<T>(
        &self,
        memory: Memory<'_>,
        mut random: Random,
        visit: impl FnOnce(&RefCell<dyn FrameAllocator + '_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let source = memory.source();
        match (self.structure, self.frames) {
            (Structure::Lists, DesignFrames::Buddy(orders)) => {
                visit(&RefCell::new(paper_lists(&source, orders, &mut random, ())?))
            }
            (_, DesignFrames::Buddy(orders)) => {
                let prepared: Allocator = source.prepare(orders, &mut random).map_err(fault)?;
                visit(&RefCell::new(prepared))
            }
            (_, DesignFrames::BestFit(orders)) => {
                let prepared: Allocator<BestFit> =
                    source.prepare(orders, &mut random).map_err(fault)?;
                visit(&RefCell::new(prepared))
            }
            (_, DesignFrames::Own(new)) => {
                let mut prepared = source.prepare_own(new, &mut random).map_err(fault)?;
                visit(&RefCell::new(prepared.as_mut()))
            }
        }
    }

    /// Steps of the paper's lists at each half of the work, on the memory
    /// that [`over`](Self::over) would have.
    ///
    /// # Errors
    /// The fault of the memory, or of the work.
    pub(crate) fn steps(
        &self,
        memory: Memory<'_>,
        mut random: Random,
        demands: Demands,
        work: Work,
    ) -> Result<[Steps; 2], Fault> {
        let source = memory.source();
        let DesignFrames::Buddy(orders) = self.frames else {
            return Err(format!("{} is not on the paper's lists", self.design));
        };
        let lists = paper_lists(&source, orders, &mut random, Steps::default())?;
        let lists = RefCell::new(lists);
        let mut steps = [Steps::default(); 2];
        let mut look = |act: Act, work: &mut dyn FnMut()| {
            lists.borrow_mut().watch = Steps::default();
            work();
            steps[act as usize] = lists.borrow().watch;
        };
        self.perform(&lists, demands, work, &mut look)?;
        Ok(steps)
    }

    /// Prepares the work, lets `measure` run each half of it once, and checks
    /// what it did.
    ///
    /// # Errors
    /// The fault, if the work was not done.
    pub(crate) fn perform(
        &self,
        allocator: &RefCell<dyn FrameAllocator + '_>,
        demands: Demands,
        work: Work,
        measure: &mut dyn FnMut(Act, &mut dyn FnMut()),
    ) -> Result<(), Fault> {
        let before = allocator.borrow().free_frames();
        let missing = || before - allocator.borrow().free_frames();
        let mut frames = 0;
        match work {
            Work::Eager => {
                let request = PageRange::new(Vpn::new(0x100), demands.request_frames);
                let extent = table_extent(reach_frames(Format::ArmV7), &[request]);
                // Written before, so that the host's own page faults are not timed.
                let mut words = vec![!0; extent.count as usize * 512];
                let memory = SliceMemory::new(extent.start, &mut words);
                let tables: Allocator =
                    new_allocator(extent, BuddyConfig::BBS, true).map_err(fault)?;
                let tables = RefCell::new(tables);
                let (format, coalescing) = (Format::ArmV7, self.coalescing);
                let mut space = AddressSpace::new(format, coalescing, &memory, allocator, &tables)
                    .map_err(fault)?;
                measure(Act::Allocate, &mut || {
                    let sink = &mut |block: Extent| frames += block.count;
                    black_box(space.allocate_eager(request, Attributes::USER_DATA, sink).is_ok());
                });
                check(frames, missing(), frames)?;
                measure(Act::Free, &mut || {
                    black_box(space.unmap(request).is_ok());
                });
                return check(frames, missing(), 0);
            }
            Work::Request | Work::Demand => {
                let wanted = match work {
                    Work::Demand => demands.demand_frames,
                    Work::Eager | Work::Request => demands.request_frames,
                };
                let mut blocks = Vec::with_capacity(wanted as usize);
                measure(Act::Allocate, &mut || {
                    let mut allocator = allocator.borrow_mut();
                    if work == Work::Demand {
                        for _ in 0..wanted {
                            let frame = black_box(allocator.allocate_frame());
                            blocks.extend(frame.map(|frame| Extent::new(frame, 1)));
                        }
                    } else {
                        black_box(
                            allocator.allocate(wanted, &mut |block| blocks.push(block)).is_ok(),
                        );
                    }
                });
                frames = blocks.iter().map(|block| block.count).sum();
                check(frames, missing(), frames)?;
                measure(Act::Free, &mut || {
                    let mut allocator = allocator.borrow_mut();
                    for &block in &blocks {
                        black_box(allocator.free(block).is_ok());
                    }
                });
            }
        }
        check(frames, missing(), 0)
    }
}

/// The paper's lists over a state of memory: its blocks, as the areas of a map
/// that is wholly free.
///
/// # Errors
/// The fault of the memory.
pub(crate) fn paper_lists<W: Watch>(
    source: &Source<'_>,
    config: BuddyConfig,
    random: &mut Random,
    watch: W,
) -> Result<PaperLists<W>, Fault> {
    let mut ranges = Vec::new();
    let prepared = source.prepare(BuddyConfig::BBS, random);
    let blocks: Allocator = prepared.map_err(fault)?;
    blocks.for_each_free(&mut |block| ranges.push(ByteRange::of_frames(block)));
    let mut areas = vec![Extent::default(); ranges.len()];
    let map = MemoryMap::new(&ranges, &mut areas).map_err(fault)?;
    Ok(PaperLists::watched(&map, config, watch))
}

/// Refuses work after which other frames are missing than were handed out.
fn check(frames: u64, missing: u64, expected: u64) -> Result<(), Fault> {
    if frames == 0 || missing != expected {
        return Err(format!("{frames} frames handed out, {missing} missing, not {expected}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::memory::random;

    const MEMORY: Memory<'_> =
        Memory::Blocks { block_frames: 1, free_frames: 64, free_share: 0.25 };
    const DEMANDS: Demands = Demands { request_frames: 50, demand_frames: 40 };

    /// Every subject does every work, and gives all frames back.
    #[test]
    fn every_work_ends_with_the_memory_it_began_with() {
        let pbs = BuddyConfig::PBS_ARMV7;
        for (design, frames) in [
            (BBS, DesignFrames::Buddy(BuddyConfig::BBS)),
            (PBS, DesignFrames::Buddy(pbs)),
            ("Best fit", DesignFrames::BestFit(pbs)),
        ] {
            for subject in Subject::of(design, frames, &Structure::ALL) {
                for &work in subject.works() {
                    let done = subject.over(MEMORY, random(1, 0), |allocator| {
                        let mut acts = Vec::new();
                        let measure = &mut |act, work: &mut dyn FnMut()| {
                            acts.push(act);
                            work();
                        };
                        subject.perform(allocator, DEMANDS, work, measure)?;
                        let free = allocator.borrow().free_frames();
                        Ok((acts, free))
                    });
                    assert_eq!(done, Ok((Act::ALL.to_vec(), 64)), "{subject:?} {work:?}");
                }
            }
        }
    }

    /// Frames that stand alone: the scan of Fig. 4, the head, and the head
    /// again when it is taken out; one after the other they are freed behind
    /// all that were freed before.
    #[test]
    fn steps_of_frames_that_stand_alone() {
        for (design, config, lists) in
            [(BBS, BuddyConfig::BBS, 9), (PBS, BuddyConfig::PBS_ARMV7, 3)]
        {
            let frames = DesignFrames::Buddy(config);
            let subject = &Subject::of(design, frames, &Structure::ALL)[0];
            let [taken, freed] =
                subject.steps(MEMORY, random(1, 0), DEMANDS, Work::Demand).unwrap();
            assert_eq!(taken, Steps { lists: 40 * lists, nodes: 40 * 2, changes: 40 });
            assert_eq!((freed.lists, freed.changes), (0, 40));
            let walked = 40 * 39;
            assert!(freed.nodes > walked && freed.nodes < walked + 40 * 3, "{freed:?}");
        }
    }
}
