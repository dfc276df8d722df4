//! The allocators whose cost is measured, and the work that they are measured
//! at.
//!
//! Both of Swath's structures are measured: the paper's ordered lists, scanned
//! from the highest order down, and the bitmaps that find the same blocks
//! without a scan.

use std::cell::RefCell;
use std::fmt::Display;
use std::hint::black_box;

use swath_arch::{Attributes, Coalescing, Extent, Format, PageRange, SliceMemory, Vpn};
use swath_frame::testing::lists::PaperLists;
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap};
use swath_vm::AddressSpace;

use crate::papers::page_buddy::setting::ContiguityBits;
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
}

impl Structure {
    /// Both, the paper's first.
    pub(crate) const ALL: [Self; 2] = [Self::Lists, Self::Bitmaps];

    /// Its value on the axis.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Lists => "lists",
            Self::Bitmaps => "bitmaps",
        }
    }

    /// The name of a design on it, in the figures.
    pub(crate) fn named(self, design: &str) -> String {
        match self {
            Self::Lists => format!("{design} (lists)"),
            Self::Bitmaps => design.to_owned(),
        }
    }
}

/// An allocator that is measured.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Subject {
    pub(crate) design: String,
    pub(crate) structure: Structure,
    pub(crate) config: BuddyConfig,
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

impl Work {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Eager, Self::Request, Self::Demand];

    /// Its figure, which is also its value on the axis.
    pub(crate) const fn figure(self) -> &'static str {
        match self {
            Self::Eager => "Fig. 19",
            Self::Request => "Fig. 19, allocator alone",
            Self::Demand => "Fig. 20",
        }
    }

    /// The title of its figure.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Eager => "Eager paging, page table and contiguity included",
            Self::Request => "Eager paging, without the page table",
            Self::Demand => "Demand paging, a frame at a time",
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
#[derive(Clone, Copy)]
pub(crate) struct Demands {
    /// In the one request.
    pub(crate) request_frames: u64,
    /// Single ones.
    pub(crate) demand_frames: u64,
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
        visit: impl FnOnce(&RefCell<dyn FrameAllocator>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let source = memory.source();
        match self.structure {
            Structure::Bitmaps => {
                let prepared = source.prepare(self.config, &mut random);
                let prepared: Allocator = prepared.map_err(fault)?;
                visit(&RefCell::new(prepared))
            }
            Structure::Lists => {
                // The same blocks, as the areas of a map that is wholly free.
                let mut ranges = Vec::new();
                let prepared = source.prepare(BuddyConfig::BBS, &mut random);
                let blocks: Allocator = prepared.map_err(fault)?;
                blocks.for_each_free(&mut |block| ranges.push(ByteRange::of_frames(block)));
                let mut areas = vec![Extent::default(); ranges.len()];
                let map = MemoryMap::new(&ranges, &mut areas).map_err(fault)?;
                visit(&RefCell::new(PaperLists::new(&map, self.config)))
            }
        }
    }
}

/// Prepares the work, lets `measure` run it once, and checks what it did.
///
/// # Errors
/// The fault, if the work was not done.
pub(crate) fn perform(
    allocator: &RefCell<dyn FrameAllocator>,
    demands: Demands,
    work: Work,
    measure: &mut dyn FnMut(&mut dyn FnMut()),
) -> Result<(), Fault> {
    let request = PageRange::new(Vpn::new(0x100), demands.request_frames);
    let mut frames = 0;
    let before = allocator.borrow().free_frames();
    match work {
        Work::Request => measure(&mut || {
            let sink = &mut |block: Extent| frames += block.count;
            black_box(allocator.borrow_mut().allocate(request.count, sink).is_ok());
        }),
        Work::Demand => {
            let mut allocator = allocator.borrow_mut();
            measure(&mut || {
                for _ in 0..demands.demand_frames {
                    frames += u64::from(black_box(allocator.allocate_frame()).is_some());
                }
            });
        }
        Work::Eager => {
            let extent = table_extent(reach_frames(Format::ArmV7), &[request]);
            let mut words = vec![0; extent.count as usize * 512];
            let memory = SliceMemory::new(extent.start, &mut words);
            let tables: Allocator = new_allocator(extent, BuddyConfig::BBS, true).map_err(fault)?;
            let tables = RefCell::new(tables);
            let coalescing = Coalescing::Pcad(ContiguityBits::Ideal(16).field());
            let mut space =
                AddressSpace::new(Format::ArmV7, coalescing, &memory, allocator, &tables)
                    .map_err(fault)?;
            measure(&mut || {
                let sink = &mut |block: Extent| frames += block.count;
                black_box(space.allocate_eager(request, Attributes::USER_DATA, sink).is_ok());
            });
            drop(space);
            // The space has freed everything.
            return check(frames, before - allocator.borrow().free_frames(), 0);
        }
    }
    check(frames, before - allocator.borrow().free_frames(), frames)
}

/// Refuses work after which other frames are missing than were handed out.
fn check(frames: u64, missing: u64, expected: u64) -> Result<(), Fault> {
    if frames == 0 || missing != expected {
        return Err(format!("{frames} frames handed out, {missing} missing, not {expected}"));
    }
    Ok(())
}
