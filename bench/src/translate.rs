//! The speed of simulated translation: see the crate's text for the method.
//!
//! 900 pages of single frames on ARMv7, read in steps of 64 bytes (raster), or
//! in steps of 5120 bytes (vertical), which never hits without coalescing: each
//! page's contiguity says that it is alone.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, Order, PageRange, Pfn, Regime,
    SliceMemory, VirtAddr, Vpn,
};
use swath_frame::{BuddyConfig, HeadOfList, PageBuddy};
use swath_hw::{Geometry, Mmu, WalkOrder};
use swath_vm::AddressSpace;

use crate::failure::Failure;
use crate::setup::{buddy, median};

/// The mapped pages: an image of 1280 × 720 × 4 bytes.
const PAGES: PageRange = PageRange::new(Vpn::new(0x1000), 900);

/// Bytes from one row of the image to the next.
const ROW_BYTES: u64 = 5120;

/// The three designs.
pub(crate) const DESIGNS: [&str; 3] = ["trad", "pcad", "at"];

/// The two kinds of traffic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    Raster,
    Vertical,
}

impl Traffic {
    const ALL: [Self; 2] = [Self::Raster, Self::Vertical];

    fn name(self) -> &'static str {
        match self {
            Self::Raster => "raster",
            Self::Vertical => "vertical",
        }
    }

    /// Accesses a second to reach.
    fn reach(self) -> f64 {
        match self {
            Self::Raster => 50e6,
            Self::Vertical => 20e6,
        }
    }

    pub(crate) fn addresses(self) -> impl Iterator<Item = VirtAddr> {
        self.offsets().map(|offset| VirtAddr::new(PAGES.start.address().raw() + offset))
    }

    /// The image's lines in order, from its first byte.
    pub(crate) fn offsets(self) -> impl Iterator<Item = u64> {
        let (rows, columns) = match self {
            Self::Raster => (1, PAGES.count * 64),
            Self::Vertical => (PAGES.count * 4096 / ROW_BYTES, ROW_BYTES / 64),
        };
        (0..columns).flat_map(move |x| (0..rows).map(move |y| y * ROW_BYTES + x * 64))
    }

    /// Hits of one pass from an empty TLB.
    fn hits(self) -> u64 {
        match self {
            Self::Raster => PAGES.count * 63,
            Self::Vertical => 0,
        }
    }
}

/// Runs `body` with physical memory that holds the tables of the image, in one
/// block or in single frames, and their regime.
pub(crate) fn with_tables<T>(
    design: &str,
    one_block: bool,
    body: impl FnOnce(&SliceMemory<'_>, Regime) -> Result<T, String>,
) -> Result<T, String> {
    let field = ContiguityField::Beside { bits: 8 };
    let coalescing = match design {
        "trad" => Coalescing::None,
        "pcad" => Coalescing::Pcad(field),
        _ => Coalescing::Anchor { field, distance: Order::known(4) },
    };
    let frames: RefCell<PageBuddy<Vec<u64>, HeadOfList>> =
        RefCell::new(buddy(BuddyConfig::BBS, true));
    let mut words = vec![0; 64 * 512];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let mut space = AddressSpace::new(Format::ArmV7, coalescing, &memory, &frames, &frames)
        .map_err(|error| error.to_string())?;
    let mut map = |page: Vpn, frames: Extent| {
        space.map(page, frames, Attributes::USER_DATA).map_err(|error| error.to_string())
    };
    if one_block {
        map(PAGES.start, Extent::new(Pfn::new(0x10000), PAGES.count))?;
    } else {
        for page in PAGES.iter() {
            // Every other frame, so that no two are contiguous.
            map(page, Extent::new(Pfn::new(0x10000 + 2 * page.raw()), 1))?;
        }
    }
    body(&memory, space.regime())
}

/// One pass over the image; how many accesses it had.
fn pass(mmu: &mut Mmu, memory: &SliceMemory<'_>, traffic: Traffic) -> Result<u64, String> {
    let mut accesses = 0;
    for address in traffic.addresses() {
        let access = mmu.access(address, memory).map_err(|fault| fault.to_string())?;
        black_box(access.addr);
        accesses += 1;
    }
    Ok(accesses)
}

fn check(mmu: &Mmu, traffic: Traffic, passes: u64) -> Result<(), String> {
    let stats = mmu.stats();
    let hits = stats.tlb.hits();
    if hits != passes * traffic.hits() {
        return Err(format!("{hits} hits in {passes} passes, not {}", passes * traffic.hits()));
    }
    Ok(())
}

/// For the gates: one pass inside `counted`.
pub(crate) fn gate(
    design: &str,
    traffic: Traffic,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    with_tables(design, false, |memory, regime| {
        let mut mmu = Mmu::new(regime, Geometry::default(), WalkOrder::default())
            .map_err(|error| error.to_string())?;
        let mut accesses = Ok(0);
        counted(&mut || accesses = pass(&mut mmu, memory, traffic));
        check(&mmu, traffic, 1)?;
        accesses
    })
}

/// Prints accesses a second for each design and traffic.
pub(crate) fn run() -> Result<(), Failure> {
    const SAMPLES: usize = 9;
    const PASSES: u64 = 100;
    println!(
        "{:<6} {:<9} {:>8} {:>8} {:>8} {:>8}",
        "", "million/s", "min", "median", "max", "reach"
    );
    for traffic in Traffic::ALL {
        for design in DESIGNS {
            let mut speeds = Vec::new();
            for _ in 0..SAMPLES {
                let speed = with_tables(design, false, |memory, regime| {
                    let mut mmu = Mmu::new(regime, Geometry::default(), WalkOrder::default())
                        .map_err(|error| error.to_string())?;
                    let start = Instant::now();
                    let mut accesses = 0;
                    for _ in 0..PASSES {
                        accesses += pass(&mut mmu, memory, traffic)?;
                    }
                    let speed = accesses as f64 / start.elapsed().as_secs_f64();
                    check(&mmu, traffic, PASSES)?;
                    Ok(speed)
                });
                speeds.push(speed.map_err(Failure::Result)?);
            }
            let median = median(&mut speeds);
            let [min, median, max] =
                [speeds[0], median, speeds[SAMPLES - 1]].map(|speed| format!("{:.0}", speed / 1e6));
            let reach = traffic.reach() / 1e6;
            println!(
                "{design:<6} {:<9} {min:>8} {median:>8} {max:>8} {reach:>8.0}",
                traffic.name()
            );
        }
    }
    Ok(())
}
