//! Free huge pages after churn, by allocator and rule.
//!
//! Through a front two CPUs take and free in random turns.

use std::sync::atomic::AtomicUsize;

use rayon::prelude::*;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::buddy::Rule;
use swath_frame::front::{Front, Reuse, Slot};
use swath_frame::zone::linux::{LinuxZone, PAGEBLOCK_ORDER};
use swath_frame::{
    BestFit, BuddyConfig, ByteRange, FrameAllocator, HeadOfList, MemoryMap, Mobility, PageBuddy,
    ZoneAllocator,
};

use crate::failure::Failure;
use crate::frames::churned::{HUGE_FRAMES, PERCENTS, Singles, churn, print_row};
use crate::setup::{SpinLock, bbs};

/// What is compared.
#[derive(Clone, Copy)]
enum Design {
    Head(BuddyConfig),
    Best(BuddyConfig),
    /// Through a front, which gathers or not.
    FrontHead(BuddyConfig, bool),
    FrontBest(BuddyConfig, bool),
    Linux,
}

impl<R: Rule> Singles for PageBuddy<Vec<u64>, R> {
    fn take(&mut self, _cpu: u64, _mobility: Mobility) -> Option<Pfn> {
        self.allocate_frame()
    }

    fn give(&mut self, _cpu: u64, frame: Pfn) -> bool {
        self.free_frame(frame).is_ok()
    }
}

impl<R: Rule, U: Reuse> Singles for Front<'_, SpinLock, PageBuddy<Vec<u64>, R>, U> {
    fn take(&mut self, cpu: u64, _mobility: Mobility) -> Option<Pfn> {
        self.on(cpu as usize).ok()?.allocate_frame()
    }

    fn give(&mut self, cpu: u64, frame: Pfn) -> bool {
        self.on(cpu as usize).is_ok_and(|cpu| cpu.free_frame(frame).is_ok())
    }
}

impl Singles for LinuxZone<Vec<u64>> {
    fn take(&mut self, _cpu: u64, mobility: Mobility) -> Option<Pfn> {
        self.allocate(Order::BASE, mobility)
    }

    fn give(&mut self, _cpu: u64, frame: Pfn) -> bool {
        self.free(frame, Order::BASE).is_ok()
    }
}

fn buddy<R: Rule>(
    map: &MemoryMap<'_>,
    config: BuddyConfig,
) -> Result<PageBuddy<Vec<u64>, R>, String> {
    let words = PageBuddy::<Vec<u64>, R>::storage_words(map, config);
    PageBuddy::new(map, config, vec![0; words]).map_err(|error| error.to_string())
}

fn through_front<R: Rule>(
    allocator: PageBuddy<Vec<u64>, R>,
    gathers: bool,
    work: impl FnOnce(&mut dyn Singles) -> Result<u64, String>,
) -> Result<u64, String> {
    let len = Front::<SpinLock, PageBuddy<Vec<u64>, R>>::bits_len(&allocator);
    let mut bits: Vec<_> = (0..len).map(|_| AtomicUsize::new(0)).collect();
    let mut slots: [Slot<SpinLock>; 2] = std::array::from_fn(|_| Slot::new());
    let mut front =
        Front::new(allocator, &mut slots, &mut bits).map_err(|error| error.to_string())?;
    if gathers { work(&mut front.gathering()) } else { work(&mut front) }
}

impl Design {
    fn run(self, frames: u64, percent: u64, unmovable: bool, seed: u64) -> Result<u64, String> {
        let span = Extent::new(Pfn::new(0), frames);
        let mut areas = [Extent::default()];
        let map = MemoryMap::new(&[ByteRange::of_frames(span)], &mut areas)
            .map_err(|error| error.to_string())?;
        let work = |allocator: &mut dyn Singles| churn(allocator, frames, percent, unmovable, seed);
        match self {
            Self::Head(config) => work(&mut buddy::<HeadOfList>(&map, config)?),
            Self::Best(config) => work(&mut buddy::<BestFit>(&map, config)?),
            Self::FrontHead(config, gathers) => {
                through_front(buddy::<HeadOfList>(&map, config)?, gathers, work)
            }
            Self::FrontBest(config, gathers) => {
                through_front(buddy::<BestFit>(&map, config)?, gathers, work)
            }
            Self::Linux => {
                let storage = vec![0; LinuxZone::<Vec<u64>>::storage_words(span)];
                let mut zone = LinuxZone::new(&map, span, PAGEBLOCK_ORDER, storage)
                    .map_err(|error| error.to_string())?;
                work(&mut zone)
            }
        }
    }
}

/// Prints the table; `numbers` are how many seeds (3 if not given) and frames (2^18).
pub(crate) fn run(numbers: &[&str]) -> Result<(), Failure> {
    let number = |at: usize, default: u64| {
        numbers.get(at).map_or(Ok(default), |text| {
            let number = text.parse().ok().filter(|&number: &u64| number > 0);
            number.ok_or_else(|| Failure::Setup(format!("churn wants numbers, not {text:?}")))
        })
    };
    let (seeds, frames) = (number(0, 3)?, number(1, 1 << 18)?);
    if !frames.is_multiple_of(HUGE_FRAMES as u64) || numbers.len() > 2 {
        return Err(Failure::Setup("churn wants SEEDS and a multiple of 512 FRAMES".into()));
    }
    let designs = [
        ("PBS 9, head of list", Design::Head(BuddyConfig::PBS_ARMV8)),
        ("PBS 4, head of list", Design::Head(BuddyConfig::PBS_ARMV7)),
        ("PBS 9, best fit", Design::Best(BuddyConfig::PBS_ARMV8)),
        ("BBS, head of list", Design::Head(bbs())),
        ("Linux's zone", Design::Linux),
        ("gathering front, PBS 9, head of list", Design::FrontHead(BuddyConfig::PBS_ARMV8, true)),
        ("gathering front, PBS 4, head of list", Design::FrontHead(BuddyConfig::PBS_ARMV7, true)),
        ("gathering front, BBS", Design::FrontHead(bbs(), true)),
        ("front, PBS 9, head of list", Design::FrontHead(BuddyConfig::PBS_ARMV8, false)),
        ("front, PBS 9, best fit", Design::FrontBest(BuddyConfig::PBS_ARMV8, false)),
        ("front, BBS", Design::FrontHead(bbs(), false)),
    ];
    println!(
        "free runs of 2 MiB of {}, mean (least to most) of {seeds} seeds",
        frames / HUGE_FRAMES as u64
    );
    for unmovable in [false, true] {
        println!("\n| {} |", if unmovable { "unmovable frames among them" } else { "all movable" });
        for (name, design) in designs {
            let found = |percent| {
                let seeds = (1..seeds + 1).into_par_iter();
                seeds.map(|seed| design.run(frames, percent, unmovable, seed)).collect()
            };
            print_row(name, found).map_err(Failure::Result)?;
        }
    }
    let possible = PERCENTS.map(|percent| frames * percent / 100 / HUGE_FRAMES as u64);
    println!("\npossible with {PERCENTS:?}% free: {possible:?}");
    Ok(())
}
