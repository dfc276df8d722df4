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
    BestFit, BuddyConfig, ByteRange, FrameAllocateError, HeadOfList, MemoryMap, Mobility, PageZone,
    Rule, ZoneAllocator,
};

use crate::papers::page_buddy::design::Scheme;
use crate::papers::page_buddy::savings::DESIGN;
use crate::papers::page_buddy::translation::{
    Hardware, MeasureError, Program, blocks_at, measure_blocks,
};
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::source::memory::{PrepareError, Random, allocator_bytes};
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::grid::{CellView, Grid, Metrics, Missing, metrics};
use crate::study::kind::Drawn;
use crate::study::plan::{Refused, require};
use crate::study::results::{Figure, FigureKind, Series};

/// The plan of this part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixedPlan {
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
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
        // What is held, at most a request for each frame.
        allocator_bytes(self.frames.get()).saturating_add(self.frames.get() * 160)
    }
}

/// The zones of memory and their allocators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Design {
    pub(crate) name: &'static str,
    /// True if the CPU has a zone of its own, a binary buddy.
    two: bool,
    /// True if the devices' zone, or the only one, is a page buddy.
    pages: bool,
    best_fit: bool,
}

const fn design(name: &'static str, two: bool, pages: bool, best_fit: bool) -> Design {
    Design { name, two, pages, best_fit }
}

pub(crate) const DESIGNS: [Design; 5] = [
    design("BBS for both", false, false, false),
    design("PBS for both", false, true, false),
    design("two zones, BBS and BBS", true, false, false),
    design("two zones, BBS and PBS", true, true, false),
    design("two zones, BBS and PBS with best fit", true, true, true),
];

/// Pageblocks of 2 MiB, as in Linux; nothing is isolated here.
const UNIT: Order = Order::known(9);

type Zone<R> = PageZone<Vec<u64>, R>;

fn zone<R: Rule>(frames: Extent, config: BuddyConfig) -> Result<Zone<R>, PrepareError> {
    let mut areas = [Extent::default()];
    let map = MemoryMap::new(&[ByteRange::of_frames(frames)], &mut areas)?;
    let words = Zone::<R>::storage_words(&map, config, UNIT);
    Ok(Zone::new(&map, config, UNIT, vec![0; words])?)
}

/// The blocks of a program's requests, and the CPU's large requests with those that failed.
type Served = Result<(Vec<(Vpn, Extent)>, (u64, u64)), PrepareError>;

/// The memory of one point, with what is in use.
struct Memory<R> {
    /// The CPU's zone; without one it uses that of the devices.
    cpu_zone: Option<Zone<HeadOfList>>,
    dma_zone: Zone<R>,
    /// Blocks of the CPU.
    cpu: Vec<(Pfn, Order)>,
    cpu_frames: u64,
    /// Requests of the devices, in blocks.
    dma: Vec<Vec<Extent>>,
    dma_frames: u64,
    /// Large requests of the CPU, and those that failed.
    large: (u64, u64),
}

impl<R: Rule> Memory<R> {
    fn new(
        plan: &MixedPlan,
        design: Design,
        (bbs, pbs): (BuddyConfig, BuddyConfig),
    ) -> Result<Self, PrepareError> {
        let (cpu, dma) = plan.parts();
        let own = |first| zone(Extent::new(Pfn::new(0), first), bbs);
        let start = if design.two { cpu } else { 0 };
        let frames = Extent::new(Pfn::new(start), cpu + dma - start);
        Ok(Self {
            cpu_zone: if design.two { Some(own(cpu)?) } else { None },
            dma_zone: zone(frames, if design.pages { pbs } else { bbs })?,
            cpu: Vec::new(),
            cpu_frames: 0,
            dma: Vec::new(),
            dma_frames: 0,
            large: (0, 0),
        })
    }

    fn of_cpu(&mut self) -> &mut dyn ZoneAllocator {
        match &mut self.cpu_zone {
            Some(zone) => zone,
            None => &mut self.dma_zone,
        }
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
                self.dma_zone.free_range(block)?;
            }
        }
        Ok(())
    }

    fn dma_request(&mut self, frames: u64) -> Result<Vec<Extent>, FrameAllocateError> {
        let mut blocks = Vec::new();
        self.dma_zone.allocate_range(frames, &mut |block| blocks.push(block))?;
        Ok(blocks)
    }

    /// Both owners come and go, then the program asks for its buffers.
    fn age(
        mut self,
        plan: &MixedPlan,
        used: Share,
        operations: u64,
        program: &Program,
        random: &mut Random,
    ) -> Served {
        let (cpu, dma) = plan.parts();
        let limit = |frames: u64| (frames as f64 * used.get()) as u64;
        for _ in 0..operations {
            if random.random::<bool>() {
                self.cpu_turn(plan, limit(cpu), random)?;
            } else {
                self.dma_turn(plan, limit(dma), random)?;
            }
        }
        Ok((self.serve(plan, program, random)?, self.large))
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
            let allocate =
                |frames, sink: &mut dyn FnMut(Extent)| self.dma_zone.allocate_range(frames, sink);
            blocks.extend(blocks_at(*request, allocate)?);
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
    orders: (BuddyConfig, BuddyConfig),
    operations: u64,
    random: &mut Random,
) -> Result<Metrics, MeasureError> {
    let program = Program::of(&plan.workload.build(&Shapes::default()));
    let work = |serve: Served| {
        let (blocks, (large, failed)) = serve?;
        let measured = measure_blocks(hardware, Scheme::Pcad, &program, &blocks)?;
        Ok(metrics([
            ("hit_rate", measured.hit_rate()),
            ("blocks", measured.blocks as f64),
            ("failed", failed as f64 / large.max(1) as f64),
        ]))
    };
    if design.best_fit {
        let memory = Memory::<BestFit>::new(plan, design, orders)?;
        work(memory.age(plan, used, operations, &program, random))
    } else {
        let memory = Memory::<HeadOfList>::new(plan, design, orders)?;
        work(memory.age(plan, used, operations, &program, random))
    }
}

pub(crate) const LEVEL: &str = "used_share";

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
        ("Mixed memory, blocks", workload, "blocks for its requests", "blocks", "blocks"),
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
        found.map_or(f64::NAN, |found| found.estimate().value)
    };
    let said = |design: &Design| {
        let (blocks, failed) = (of(design, "blocks"), 100.0 * of(design, "failed"));
        format!("{}: {blocks:.1}, {failed:.1}%", design.name)
    };
    let all: Vec<String> = DESIGNS.iter().map(said).collect();
    format!(
        "Mixed memory, the blocks that a device gets for its {} pages, and the share of the CPU's \
         requests of order {} and more that fail, with {} in use: {}.",
        plan.workload.build(&Shapes::default()).pages(),
        plan.cpu_order_large,
        used.get(),
        all.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::memory::random;

    fn plan() -> MixedPlan {
        let bounded = |value| Bounded::new(value).unwrap();
        MixedPlan {
            repeats: Forms { full: Bounded::new(1).unwrap(), quick: Bounded::new(1).unwrap() },
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
        for design in DESIGNS {
            if design.best_fit {
                stay_apart::<BestFit>(design);
            } else {
                stay_apart::<HeadOfList>(design);
            }
        }
    }

    fn stay_apart<R: Rule>(design: Design) {
        let plan = plan();
        let mut random = random(7, 0);
        let orders = (BuddyConfig::BBS, BuddyConfig::PBS_ARMV7);
        let mut memory = Memory::<R>::new(&plan, design, orders).unwrap();
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
            let cpu = memory.cpu.iter().map(|&(start, order)| Extent::new(start, order.frames()));
            let (cpu, dma): (Vec<Extent>, Vec<Extent>) =
                (cpu.collect(), memory.dma.iter().flatten().copied().collect());
            for frame in cpu.iter().chain(&dma).flat_map(|block| block.iter()) {
                assert!(!std::mem::replace(&mut owned[frame.raw() as usize], true));
            }
            let count = |blocks: &[Extent]| blocks.iter().map(|block| block.count).sum::<u64>();
            assert_eq!((memory.cpu_frames, memory.dma_frames), (count(&cpu), count(&dma)));
            let of_cpu = memory.cpu_zone.as_ref().map_or(0, ZoneAllocator::free_frames);
            let free = of_cpu + memory.dma_zone.free_frames();
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
        assert_eq!(memory.of_cpu().free_frames(), memory.of_cpu().total_frames());
        assert_eq!(memory.dma_zone.free_frames(), memory.dma_zone.total_frames());
    }
}
