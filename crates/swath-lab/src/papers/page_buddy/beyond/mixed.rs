//! The CPU's programs on a binary buddy beside DMA devices on the page buddy, in one memory.
//!
//! Section IV-G: "A potential use case is to utilize BBS for general-purpose applications running on
//! the CPU and utilize PBS for special-purpose workloads executed by the DMA I/O devices." Memory is
//! one zone or two with a fixed boundary, and each zone's allocator is one of the two. Both owners come
//! and go at random: the CPU with aligned blocks of an order, half of them of order 0, a quarter of
//! order 1 and so on; the devices with ranges of random length. What each may have in use is the same
//! in one zone as in two. Then a device's workload asks for its buffers.

use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn, Vpn};
use swath_frame::{
    BuddyConfig, ByteRange, FrameAllocateError, MemoryMap, Mobility, PageZone, ZoneAllocator,
};

use crate::papers::page_buddy::translation::{
    Hardware, MeasureError, Program, Scheme, measure_blocks,
};
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::source::memory::{PrepareError, Random, allocator_bytes};
use crate::study::bounds::{Ascending, Bounded, Forms, Share};
use crate::study::grid::{CellView, Grid, Metrics, Missing, metrics};
use crate::study::kind::Drawn;
use crate::study::plan::{Refused, require};
use crate::study::results::{Figure, FigureKind, Series};

/// The plan of this part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixedPlan {
    /// Frames of the memory.
    pub frames: Bounded<4096, { 1 << 19 }>,
    /// The share of the frames that the devices may have, and that are their zone where there are two.
    pub dma_share: Share,
    /// The shares in use of what each owner may have, one point of the x axis each.
    pub used_shares: Ascending<Share>,
    /// Requests and releases of both owners together.
    pub operations: Forms<Bounded<1, { 1 << 24 }>>,
    /// The largest order of the CPU's requests.
    pub cpu_order_max: Bounded<0, 16>,
    /// The order from which on the CPU's requests count as large.
    pub cpu_order_large: Bounded<0, 16>,
    /// The longest of the devices' requests; lengths are log-uniform from 1 to this.
    pub dma_frames_max: Bounded<1, 4096>,
    /// The device's workload that is measured in the end.
    pub workload: WorkloadName,
}

impl MixedPlan {
    /// Refuses a zone that cannot hold the workload, and orders that no zone has.
    pub(crate) fn check(&self, top: Order) -> Result<(), Refused> {
        let pages = self.workload.build(&Shapes::default()).pages();
        let (_, dma) = self.parts();
        require(pages <= dma, "mixed.dma_share", || {
            format!("{dma} frames for the devices are fewer than the workload's {pages}")
        })?;
        require(self.cpu_order_max.small() <= top.k(), "mixed.cpu_order_max", || {
            format!("{} is above the largest order of BBS, {top}", self.cpu_order_max)
        })?;
        let (large, most) = (self.cpu_order_large.get(), self.cpu_order_max.get());
        require(large <= most, "mixed.cpu_order_large", || format!("{large} is more than {most}"))
    }

    /// The frames of the CPU, and those of the devices.
    fn parts(&self) -> (u64, u64) {
        let dma = (self.frames.get() as f64 * self.dma_share.get()) as u64;
        (self.frames.get() - dma, dma)
    }

    pub(crate) fn needs_bytes(&self) -> u64 {
        // What is held, at most a block for each frame.
        allocator_bytes(self.frames.get()).saturating_add(self.frames.get() * 48)
    }
}

/// The zones of memory and their allocators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Design {
    pub(crate) name: &'static str,
    two: bool,
    /// The allocator of the CPU's zone, or of the only one, is the page buddy.
    cpu_pages: bool,
    dma_pages: bool,
}

pub(crate) const DESIGNS: [Design; 4] = [
    Design { name: "BBS for both", two: false, cpu_pages: false, dma_pages: false },
    Design { name: "PBS for both", two: false, cpu_pages: true, dma_pages: true },
    Design { name: "two zones, BBS and BBS", two: true, cpu_pages: false, dma_pages: false },
    Design { name: "two zones, BBS and PBS", two: true, cpu_pages: false, dma_pages: true },
];

/// Pageblocks of 2 MiB, as in Linux; nothing is isolated here.
const UNIT: Order = Order::known(9);

type Zone = PageZone<Vec<u64>>;

fn zone(frames: Extent, config: BuddyConfig) -> Result<Zone, PrepareError> {
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(frames)], &mut areas)?;
    let words = Zone::storage_words(&map, config, UNIT);
    Ok(Zone::new(&map, config, UNIT, vec![0; words])?)
}

/// The memory of one point, with what is in use.
struct Memory {
    zones: Vec<Zone>,
    /// Blocks of the CPU.
    cpu: Vec<(Pfn, Order)>,
    cpu_frames: u64,
    /// Requests of the devices, in blocks.
    dma: Vec<Vec<Extent>>,
    dma_frames: u64,
    /// Large requests of the CPU, and those that failed.
    large: (u64, u64),
}

impl Memory {
    fn new(
        plan: &MixedPlan,
        design: Design,
        bbs: BuddyConfig,
        pbs: BuddyConfig,
    ) -> Result<Self, PrepareError> {
        let (cpu, dma) = plan.parts();
        let config = |pages| if pages { pbs } else { bbs };
        let zones = if design.two {
            let first = zone(Extent::new(Pfn::new(0), cpu), config(design.cpu_pages))?;
            vec![first, zone(Extent::new(Pfn::new(cpu), dma), config(design.dma_pages))?]
        } else {
            vec![zone(Extent::new(Pfn::new(0), cpu + dma), config(design.cpu_pages))?]
        };
        let (cpu, dma) = (Vec::new(), Vec::new());
        Ok(Self { zones, cpu, cpu_frames: 0, dma, dma_frames: 0, large: (0, 0) })
    }

    fn of_cpu(&mut self) -> &mut Zone {
        &mut self.zones[0]
    }

    fn of_dma(&mut self) -> &mut Zone {
        let last = self.zones.len() - 1;
        &mut self.zones[last]
    }

    /// A request of the CPU if it may have it, else a release.
    fn cpu_turn(
        &mut self,
        plan: &MixedPlan,
        limit: u64,
        random: &mut Random,
    ) -> Result<(), PrepareError> {
        let drawn = random.random::<u64>().trailing_ones().min(plan.cpu_order_max.small());
        let order = Order::known(drawn as u8);
        if self.cpu_frames + order.frames() > limit {
            if !self.cpu.is_empty() {
                let (start, order) = self.cpu.swap_remove(random.random_range(0..self.cpu.len()));
                self.cpu_frames -= order.frames();
                self.of_cpu().free(start, order)?;
            }
            return Ok(());
        }
        let block = self.of_cpu().allocate(order, Mobility::Movable);
        if drawn >= plan.cpu_order_large.small() {
            self.large.0 += 1;
            self.large.1 += u64::from(block.is_none());
        }
        if let Some(start) = block {
            self.cpu.push((start, order));
            self.cpu_frames += order.frames();
        }
        Ok(())
    }

    /// A request of a device if it may have it, else a release.
    fn dma_turn(
        &mut self,
        plan: &MixedPlan,
        limit: u64,
        random: &mut Random,
    ) -> Result<(), PrepareError> {
        let spread = (plan.dma_frames_max.get() as f64).log2();
        let length = (random.random::<f64>() * spread).exp2().round() as u64;
        if self.dma_frames + length > limit {
            return self.dma_release(random);
        }
        let blocks = self.dma_request(length)?;
        self.dma_frames += length;
        self.dma.push(blocks);
        Ok(())
    }

    fn dma_release(&mut self, random: &mut Random) -> Result<(), PrepareError> {
        if !self.dma.is_empty() {
            let request = self.dma.swap_remove(random.random_range(0..self.dma.len()));
            for block in request {
                self.dma_frames -= block.count;
                self.of_dma().free_range(block)?;
            }
        }
        Ok(())
    }

    fn dma_request(&mut self, frames: u64) -> Result<Vec<Extent>, FrameAllocateError> {
        let mut blocks = Vec::new();
        self.of_dma().allocate_range(frames, &mut |block| blocks.push(block))?;
        Ok(blocks)
    }

    /// The blocks of a program's requests; devices release what stands in the way of their share.
    fn serve(
        &mut self,
        plan: &MixedPlan,
        program: &Program,
        random: &mut Random,
    ) -> Result<Vec<(Vpn, Extent)>, PrepareError> {
        let (_, dma) = plan.parts();
        while self.dma_frames + program.requested_pages() > dma {
            self.dma_release(random)?;
        }
        let mut blocks = Vec::new();
        for request in &program.requests {
            let mut page = request.start;
            for block in self.dma_request(request.count)? {
                blocks.push((page, block));
                page = page + block.count;
            }
        }
        Ok(blocks)
    }
}

/// Measures a design at a level of use.
///
/// # Errors
/// [`MeasureError`].
pub(crate) fn measure(
    plan: &MixedPlan,
    hardware: &Hardware,
    (design, used): (Design, Share),
    (bbs, pbs): (BuddyConfig, BuddyConfig),
    operations: u64,
    random: &mut Random,
) -> Result<Metrics, MeasureError> {
    let mut memory = Memory::new(plan, design, bbs, pbs)?;
    let (cpu, dma) = plan.parts();
    let limit = |frames: u64| (frames as f64 * used.get()) as u64;
    for _ in 0..operations {
        if random.random::<bool>() {
            memory.cpu_turn(plan, limit(cpu), random)?;
        } else {
            memory.dma_turn(plan, limit(dma), random)?;
        }
    }
    let program = Program::of(&plan.workload.build(&Shapes::default()));
    let blocks = memory.serve(plan, &program, random)?;
    let measured = measure_blocks(hardware, Scheme::Pcad, &program, &blocks)?;
    let (large, failed) = memory.large;
    Ok(metrics([
        ("hit_rate", measured.hit_rate()),
        ("block_pages", program.requested_pages() as f64 / measured.blocks.max(1) as f64),
        ("failed", failed as f64 / large.max(1) as f64),
    ]))
}

pub(crate) const LEVEL: &str = "used_share";
pub(crate) const DESIGN: &str = "design";

/// What a device's workload gets, and what the CPU does not.
pub(crate) fn figures(plan: &MixedPlan, grid: &Grid) -> Vec<Drawn> {
    let large =
        format!("CPU's requests of order {} and more that fail (share)", plan.cpu_order_large);
    let workload = plan.workload.title();
    let kinds = [
        (
            "Mixed memory",
            workload,
            "TLB hit rate with PCAD (share of accesses)",
            "tlb_hit_rate",
            "hit_rate",
        ),
        (
            "Mixed memory, blocks",
            workload,
            "pages in a block of its requests",
            "block_pages",
            "block_pages",
        ),
        ("Mixed memory, CPU", "large blocks", &large, "failed_share", "failed"),
    ];
    let drawn = |(id, title, y_label, y, metric): (&str, &str, &str, &str, &str)| {
        let x_label = "in use of what each owner may have (share)";
        let figure = Figure::new(id, title, FigureKind::Lines, x_label, y_label);
        let of = |design: &Design| {
            let value = |cell: &CellView<'_>| -> Result<f64, Missing> { cell.get(metric) };
            let points = grid.points(LEVEL, |all| all.is(DESIGN, design.name), value);
            Series::new(id, LEVEL, y, design.name, points)
        };
        Drawn { figure, series: DESIGNS.iter().map(of).collect() }
    };
    kinds.map(drawn).to_vec()
}

/// The finding in one sentence.
pub(crate) fn finding(plan: &MixedPlan, grid: &Grid) -> String {
    let Some(used) = plan.used_shares.last() else { return String::new() };
    let of = |design: &Design, metric: &str| {
        let found = grid.evidence(|view| {
            view.select().is(LEVEL, used.get()).is(DESIGN, design.name).one(metric)
        });
        found.map_or_else(|_| "-".to_owned(), |found| format!("{:.1}", found.estimate().value))
    };
    let all: Vec<String> = DESIGNS
        .iter()
        .map(|design| format!("{} on {}", of(design, "block_pages"), design.name))
        .collect();
    format!(
        "In a memory that the CPU shares, {} of it in use, a device's block has {} pages in the mean.",
        used.get(),
        all.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::memory::random;

    fn plan() -> MixedPlan {
        let bounded = |value| Bounded::new(value).unwrap();
        MixedPlan {
            frames: Bounded::new(4096).unwrap(),
            dma_share: Share::new(0.5).unwrap(),
            used_shares: Ascending::new(vec![Share::new(0.75).unwrap()]).unwrap(),
            operations: Forms { full: Bounded::new(1).unwrap(), quick: Bounded::new(1).unwrap() },
            cpu_order_max: bounded(8),
            cpu_order_large: bounded(4),
            dma_frames_max: Bounded::new(300).unwrap(),
            workload: WorkloadName::RotatedDisplay,
        }
    }

    /// No frame has two owners, each zone has its own owner's alone, and all frames come back.
    #[test]
    fn owners_stay_apart() {
        let plan = plan();
        for design in DESIGNS {
            let mut random = random(7, 0);
            let mut memory =
                Memory::new(&plan, design, BuddyConfig::BBS, BuddyConfig::PBS_ARMV7).unwrap();
            for step in 0..3000 {
                if step % 2 == 0 {
                    memory.cpu_turn(&plan, 1536, &mut random).unwrap();
                } else {
                    memory.dma_turn(&plan, 1536, &mut random).unwrap();
                }
                if step % 100 > 0 {
                    continue;
                }
                let mut owned = vec![false; 4096];
                let cpu =
                    memory.cpu.iter().map(|&(start, order)| Extent::new(start, order.frames()));
                let (cpu, dma): (Vec<Extent>, Vec<Extent>) =
                    (cpu.collect(), memory.dma.iter().flatten().copied().collect());
                for frame in cpu.iter().chain(&dma).flat_map(|block| block.iter()) {
                    assert!(!std::mem::replace(&mut owned[frame.raw() as usize], true));
                }
                let count = |blocks: &[Extent]| blocks.iter().map(|block| block.count).sum::<u64>();
                assert_eq!((memory.cpu_frames, memory.dma_frames), (count(&cpu), count(&dma)));
                let free: u64 = memory.zones.iter().map(ZoneAllocator::free_frames).sum();
                assert_eq!(free + memory.cpu_frames + memory.dma_frames, 4096);
                assert!(memory.cpu_frames <= 1536 && memory.dma_frames <= 1536);
                if design.two {
                    assert!(cpu.iter().all(|block| block.end().raw() <= 2048));
                    assert!(dma.iter().all(|block| block.start.raw() >= 2048));
                }
            }
            for (start, order) in std::mem::take(&mut memory.cpu) {
                memory.of_cpu().free(start, order).unwrap();
            }
            while !memory.dma.is_empty() {
                memory.dma_release(&mut random).unwrap();
            }
            assert!(memory.zones.iter().all(|zone| zone.free_frames() == zone.total_frames()));
        }
    }
}
