//! The allocators that the green memory manager's studies compare, and what
//! the machine needs of each beyond the interface of every zone.

use rand::RngExt;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::bank::{
    AdaptiveBuddy, ArrayBuddy, ArrayPlacement, BankBuddy, BankLayout, BoundaryBuddy,
    BoundaryPlacement, ListBuddy, ListPlacement, Placement, PoolPlacement, PoolPolicy, TreeBuddy,
    TreePlacement,
};
use swath_frame::zone::linux::{Fallback, ORDER_MAX, Observe, PAGEBLOCK_ORDER};
use swath_frame::{BuddyConfig, ByteRange, LinuxZone, MemoryMap, Mobility, PageZone};
use swath_vm::migrate::units::Emptying;

use crate::papers::green::machine::start::MachineStart;
use crate::source::memory::random;

/// An allocator of the comparison.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum AllocatorName {
    /// Linux 6.18.
    Linux,
    /// The same with half of each node as `ZONE_MOVABLE` at most.
    LinuxMovable,
    /// The same with `vm.defrag_mode`, without its reclaim and compaction: what these would be done
    /// for counts as a stall.
    LinuxDefrag,
    /// The same with an eighth of each node as an area that is lent to clean pages of files alone, which are dropped
    /// for a huge page that there is no room for elsewhere (guaranteed CMA: Park et al., 2016).
    LinuxGuaranteed,
    /// The array-based bank-buddy (section IV-A).
    BankArray,
    /// The list-based bank-buddy with its most recently used bank (section IV-B).
    BankList,
    /// Contiguitas' two regions with a boundary that moves (Zhao et al., ISCA 2023), by banks.
    Contiguitas,
    /// LLFree's choice of memory by reserved trees (Wrenger et al., ATC 2023), one for each kind of request instead of
    /// each processor.
    Llfree,
    /// Adaptive-Buddy with the paper's pools (section IV-D).
    Adaptive,
    /// Adaptive-Buddy that serves from the fullest bank of a pool.
    AdaptivePacked,
    /// The page buddy system with the head-of-list rule (Duong and Hur), which knows of no mobility.
    Pbs,
}

impl AllocatorName {
    /// Every allocator.
    pub const ALL: [Self; 11] = [
        Self::Linux,
        Self::LinuxMovable,
        Self::LinuxDefrag,
        Self::LinuxGuaranteed,
        Self::BankArray,
        Self::BankList,
        Self::Contiguitas,
        Self::Llfree,
        Self::Adaptive,
        Self::AdaptivePacked,
        Self::Pbs,
    ];

    /// Its name in plans.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::LinuxMovable => "linux-movable",
            Self::LinuxDefrag => "linux-defrag",
            Self::LinuxGuaranteed => "linux-guaranteed",
            Self::BankArray => "bank-array",
            Self::BankList => "bank-list",
            Self::Contiguitas => "contiguitas",
            Self::Llfree => "llfree",
            Self::Adaptive => "adaptive",
            Self::AdaptivePacked => "adaptive-packed",
            Self::Pbs => "pbs",
        }
    }

    /// Its name in figures and tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::LinuxMovable => "Linux, ZONE_MOVABLE",
            Self::LinuxDefrag => "Linux, defrag_mode",
            Self::LinuxGuaranteed => "Linux, guaranteed CMA",
            Self::BankArray => "Bank-Array",
            Self::BankList => "Bank-List",
            Self::Contiguitas => "Contiguitas",
            Self::Llfree => "LLFree",
            Self::Adaptive => "Adaptive-Buddy",
            Self::AdaptivePacked => "Adaptive-Buddy, packed",
            Self::Pbs => "PBS, head of list",
        }
    }
}

/// Linux's fallbacks, counted by the mobility wanted and the one found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FallbackTally {
    /// By mobility wanted, mobility found, and whether the pageblock changed
    /// over; mobilities in the order of [`Mobility::ALL`].
    pub counts: [[[u64; 2]; 3]; 3],
    /// By the order of the block that was found, the largest for larger ones too.
    pub block_orders: [u64; 11],
}

impl FallbackTally {
    /// Counts one.
    pub fn count(&mut self, wanted: Mobility, from: Mobility, claimed: bool, block_order: Order) {
        self.counts[wanted as usize][from as usize][usize::from(claimed)] += 1;
        self.block_orders[(block_order.k() as usize).min(10)] += 1;
    }

    /// Number of fallbacks.
    pub fn total(&self) -> u64 {
        self.block_orders.iter().sum()
    }

    /// The share of fallbacks that changed the pageblock over; `None` without any.
    pub fn claimed_share(&self) -> Option<f64> {
        let claimed: u64 = self.counts.iter().flatten().map(|counts| counts[1]).sum();
        (self.total() > 0).then(|| claimed as f64 / self.total() as f64)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let counts = self.counts.iter_mut().flatten().flatten();
        for (to, from) in counts.zip(other.counts.iter().flatten().flatten()) {
            *to += from;
        }
        for (to, from) in self.block_orders.iter_mut().zip(other.block_orders) {
            *to += from;
        }
    }
}

impl Observe for FallbackTally {
    fn fallback(&mut self, event: &Fallback) {
        self.count(event.wanted, event.from, event.claimed, event.block_order);
    }
}

/// The place of an allocator, and its division into banks.
pub(crate) struct ZonePlace<'a> {
    pub(crate) map: &'a MemoryMap<'a>,
    pub(crate) span: Extent,
    pub(crate) banks: BankLayout,
}

/// A zone's allocator, as the harness drives it.
pub(crate) trait GreenZone: Emptying + Sized {
    /// Words of storage of such a zone, or the reason why there cannot be one.
    fn storage_words(place: &ZonePlace<'_>, name: AllocatorName) -> Result<usize, String>;

    /// The zone at its beginning, all free, or the reason why there cannot be one.
    fn build(place: &ZonePlace<'_>, name: AllocatorName) -> Result<Self, String>;

    /// The zone with the frames in use that a machine starts with, or the reason why there cannot be
    /// one.
    fn begin(
        place: &ZonePlace<'_>,
        name: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String>;

    /// Requests that were served from memory of the other kind, where the
    /// allocator counts them.
    fn fallbacks(&self) -> Option<u64> {
        None
    }

    /// Banks that left POOL_OFFLINE, where there is one.
    fn opened(&self) -> u64 {
        0
    }

    /// Linux's fallbacks in detail.
    fn tally(&self) -> Option<&FallbackTally> {
        None
    }
}

/// Linux's zone, all free, whose fallbacks are not counted.
pub(crate) fn linux(place: &ZonePlace<'_>) -> Result<LinuxZone<Vec<u64>>, String> {
    let words = LinuxZone::<Vec<u64>>::storage_words(place.span);
    let zone = LinuxZone::new(place.map, place.span, PAGEBLOCK_ORDER, touched(words));
    zone.map_err(|error| error.to_string())
}

/// Storage that is in memory already: where it were not, page faults would be
/// part of an allocation's time.
fn touched(words: usize) -> Vec<u64> {
    vec![u64::MAX; words]
}

/// Linux's zone in a state. Its free lists are in a random order.
fn linux_begin(place: &ZonePlace<'_>, start: &MachineStart) -> Result<LinuxZone<Vec<u64>>, String> {
    let storage = touched(LinuxZone::<Vec<u64>>::storage_words(place.span));
    let mut owner = |frame| start.owner(frame, Order::BASE);
    let mut pageblock = |frame| start.pageblock(Extent::block_around(frame, PAGEBLOCK_ORDER));
    let zone = LinuxZone::from_state(
        place.map,
        place.span,
        PAGEBLOCK_ORDER,
        storage,
        &mut owner,
        &mut pageblock,
    );
    let mut zone = zone.map_err(|error| error.to_string())?;
    let mut random = random(start.seed(), place.span.start.raw());
    for order in (0..=ORDER_MAX.k()).map(|k| Order::known(k as u8)) {
        for mobility in Mobility::ALL {
            let mut blocks: Vec<Pfn> = zone.list(order, mobility).collect();
            while !blocks.is_empty() {
                let nth = random.random_range(0..blocks.len());
                zone.bring_forward(blocks.swap_remove(nth));
            }
        }
    }
    Ok(zone)
}

fn bank_begin<P: Placement>(
    place: &ZonePlace<'_>,
    rule: P,
    start: &MachineStart,
) -> Result<BankBuddy<Vec<u64>, P>, String> {
    let storage = touched(bank_words(place, &rule)?);
    let used = start.used().iter().copied();
    let zone = BankBuddy::from_state(place.map, place.span, place.banks, rule, storage, used);
    zone.map_err(|error| error.to_string())
}

fn bank_words<P: Placement>(place: &ZonePlace<'_>, rule: &P) -> Result<usize, String> {
    let words = BankBuddy::<Vec<u64>, P>::storage_words(place.map, place.span, place.banks, rule);
    words.map_err(|error| error.to_string())
}

fn bank_zone<P: Placement>(
    place: &ZonePlace<'_>,
    rule: P,
) -> Result<BankBuddy<Vec<u64>, P>, String> {
    let storage = touched(bank_words(place, &rule)?);
    let zone = BankBuddy::new(place.map, place.span, place.banks, rule, storage);
    zone.map_err(|error| error.to_string())
}

/// The bank that served last is tried first.
const LIST: ListPlacement = ListPlacement::new(true);

fn pools(name: AllocatorName) -> PoolPlacement {
    PoolPlacement::new(if name == AllocatorName::AdaptivePacked {
        PoolPolicy::PACKED
    } else {
        PoolPolicy::PAPER
    })
}

impl GreenZone for LinuxZone<Vec<u64>, FallbackTally> {
    fn storage_words(place: &ZonePlace<'_>, _: AllocatorName) -> Result<usize, String> {
        Ok(LinuxZone::<Vec<u64>>::storage_words(place.span))
    }

    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        Ok(linux(place)?.observed(FallbackTally::default()))
    }

    fn begin(
        place: &ZonePlace<'_>,
        _: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String> {
        Ok(linux_begin(place, start)?.observed(FallbackTally::default()))
    }

    fn fallbacks(&self) -> Option<u64> {
        Some(self.observer().total())
    }

    fn tally(&self) -> Option<&FallbackTally> {
        Some(self.observer())
    }
}

/// The lists that the page buddy system has for x86-64 and ARMv8.
const LISTS: BuddyConfig = BuddyConfig::PBS_ARMV8;

/// Calls `with` with the map of a zone's own frames.
fn own_map<T>(
    place: &ZonePlace<'_>,
    with: impl FnOnce(&MemoryMap<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let own = place.map.areas().iter().map(|area| area.intersect(place.span));
    let ranges: Vec<ByteRange> =
        own.filter(|area| !area.is_empty()).map(ByteRange::of_frames).collect();
    let mut areas = vec![Extent::default(); ranges.len()];
    with(&MemoryMap::new(&ranges, &mut areas).map_err(|error| error.to_string())?)
}

impl GreenZone for PageZone<Vec<u64>> {
    fn storage_words(place: &ZonePlace<'_>, _: AllocatorName) -> Result<usize, String> {
        own_map(place, |map| Ok(PageZone::<Vec<u64>>::storage_words(map, LISTS, PAGEBLOCK_ORDER)))
    }

    fn build(place: &ZonePlace<'_>, name: AllocatorName) -> Result<Self, String> {
        let storage = touched(<Self as GreenZone>::storage_words(place, name)?);
        own_map(place, |map| {
            PageZone::new(map, LISTS, PAGEBLOCK_ORDER, storage).map_err(|error| error.to_string())
        })
    }

    /// What is free is given back in a random order, so that the lists are in one.
    fn begin(
        place: &ZonePlace<'_>,
        name: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String> {
        let storage = touched(<Self as GreenZone>::storage_words(place, name)?);
        own_map(place, |map| {
            let zone = PageZone::new_allocated(map, LISTS, PAGEBLOCK_ORDER, storage);
            let mut zone: Self = zone.map_err(|error| error.to_string())?;
            let mut free: Vec<Extent> =
                map.areas().iter().flat_map(|&area| start.free(area)).collect();
            let mut random = random(start.seed(), place.span.start.raw());
            while !free.is_empty() {
                let nth = random.random_range(0..free.len());
                zone.free_range(free.swap_remove(nth)).map_err(|error| error.to_string())?;
            }
            Ok(zone)
        })
    }
}

impl GreenZone for ArrayBuddy<Vec<u64>> {
    fn storage_words(place: &ZonePlace<'_>, _: AllocatorName) -> Result<usize, String> {
        bank_words(place, &ArrayPlacement)
    }

    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        bank_zone(place, ArrayPlacement)
    }

    fn begin(
        place: &ZonePlace<'_>,
        _: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String> {
        bank_begin(place, ArrayPlacement, start)
    }
}

impl GreenZone for ListBuddy<Vec<u64>> {
    fn storage_words(place: &ZonePlace<'_>, _: AllocatorName) -> Result<usize, String> {
        bank_words(place, &LIST)
    }

    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        bank_zone(place, LIST)
    }

    fn begin(
        place: &ZonePlace<'_>,
        _: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String> {
        bank_begin(place, LIST, start)
    }
}

/// The boundary goes back if that leaves a bank's frames free for what is unmovable.
fn boundary(place: &ZonePlace<'_>) -> BoundaryPlacement {
    BoundaryPlacement::new(place.banks.frames())
}

impl GreenZone for BoundaryBuddy<Vec<u64>> {
    fn storage_words(place: &ZonePlace<'_>, _: AllocatorName) -> Result<usize, String> {
        bank_words(place, &boundary(place))
    }

    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        bank_zone(place, boundary(place))
    }

    fn begin(
        place: &ZonePlace<'_>,
        _: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String> {
        bank_begin(place, boundary(place), start)
    }
}

/// log2 of the frames of one of LLFree's trees: 32 huge pages.
const TREE_LOG2: u32 = HUGE.k() + 5;

/// A huge page.
const HUGE: Order = Order::known(9);

/// The place of an allocator whose banks are LLFree's trees, where these are smaller and divide a bank.
fn in_trees<'a>(place: &ZonePlace<'a>) -> Result<ZonePlace<'a>, String> {
    let (map, span, frames) = (place.map, place.span, place.banks.frames());
    let tree = if frames % (1 << TREE_LOG2) == 0 { 1 << TREE_LOG2 } else { frames };
    let banks = BankLayout::new(place.banks.first(), tree, place.banks.top());
    Ok(ZonePlace { map, span, banks: banks.map_err(|error| error.to_string())? })
}

/// The choice of trees.
const TREES: TreePlacement = TreePlacement::new(HUGE.k());

impl GreenZone for TreeBuddy<Vec<u64>> {
    fn storage_words(place: &ZonePlace<'_>, _: AllocatorName) -> Result<usize, String> {
        bank_words(&in_trees(place)?, &TREES)
    }

    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        bank_zone(&in_trees(place)?, TREES)
    }

    fn begin(
        place: &ZonePlace<'_>,
        _: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String> {
        bank_begin(&in_trees(place)?, TREES, start)
    }
}

impl GreenZone for AdaptiveBuddy<Vec<u64>> {
    fn storage_words(place: &ZonePlace<'_>, name: AllocatorName) -> Result<usize, String> {
        bank_words(place, &pools(name))
    }

    fn build(place: &ZonePlace<'_>, name: AllocatorName) -> Result<Self, String> {
        bank_zone(place, pools(name))
    }

    fn begin(
        place: &ZonePlace<'_>,
        name: AllocatorName,
        start: &MachineStart,
    ) -> Result<Self, String> {
        bank_begin(place, pools(name), start)
    }

    fn fallbacks(&self) -> Option<u64> {
        let moves = self.moves();
        Some(moves.stolen + moves.borrowed)
    }

    fn opened(&self) -> u64 {
        self.moves().opened_kernel + self.moves().opened_user
    }
}
