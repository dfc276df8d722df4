//! The allocators that the green memory manager's studies compare, and what
//! the harness asks each of them beyond what every zone answers.

use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::bank_buddy::{AdaptiveBuddy, Array, ArrayBuddy, List, ListBuddy, Policy, Pools};
use swath_frame::banks::{Banks, Pool};
use swath_frame::linux::{Fallback, Observe, PAGEBLOCK_ORDER};
use swath_frame::{LinuxZone, MemoryMap, Mobility, ZoneAllocator};

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
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum AllocatorName {
    /// Linux 6.18.
    Linux,
    /// The same with half of each node as `ZONE_MOVABLE` at most.
    LinuxMovable,
    /// The array-based bank-buddy (section IV-A).
    BankArray,
    /// The list-based bank-buddy with its most recently used bank (section IV-B).
    BankList,
    /// Adaptive-Buddy with the paper's pools (section IV-D).
    Adaptive,
    /// Adaptive-Buddy that serves from the fullest bank of a pool.
    AdaptivePacked,
}

impl AllocatorName {
    /// Every allocator.
    pub const ALL: [Self; 6] = [
        Self::Linux,
        Self::LinuxMovable,
        Self::BankArray,
        Self::BankList,
        Self::Adaptive,
        Self::AdaptivePacked,
    ];

    /// Its name in figures and tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::LinuxMovable => "Linux, ZONE_MOVABLE",
            Self::BankArray => "Bank-Array",
            Self::BankList => "Bank-List",
            Self::Adaptive => "Adaptive-Buddy",
            Self::AdaptivePacked => "Adaptive-Buddy, packed",
        }
    }
}

/// Linux's fallbacks, counted by what was asked for and what was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FallbackTally {
    /// By mobility asked for, mobility found, and whether the pageblock changed
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

    /// How many there were.
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

/// Where an allocator lies and how it is divided.
pub(crate) struct ZonePlace<'a> {
    pub(crate) map: &'a MemoryMap<'a>,
    pub(crate) span: Extent,
    pub(crate) banks: Banks,
}

/// A zone's allocator, as the harness drives it.
pub(crate) trait GreenZone: ZoneAllocator + Sized {
    /// Whether an empty bank rests by itself, and is opened by whom needs it.
    /// Other allocators need hotplug for both.
    const RESTS: bool = false;

    /// The zone at its beginning, all free; or why not.
    fn build(place: &ZonePlace<'_>, name: AllocatorName) -> Result<Self, String>;

    /// The pool of the bank around a frame, if it has one.
    fn pool(&self, frame: Pfn) -> Option<Pool> {
        let _ = frame;
        None
    }

    /// Whether the bank around the frame may be emptied by migration, as far as
    /// the allocator's pools go.
    fn may_be_emptied(&self, frame: Pfn) -> bool {
        let _ = frame;
        true
    }

    /// Takes a block for what is moved out of another bank, from none that rests.
    fn take_target(&mut self, order: Order) -> Option<Pfn> {
        self.take(order, Mobility::Movable)
    }

    /// Free frames that [`take_target`](Self::take_target) can take.
    fn target_frames(&self) -> u64 {
        self.free_frames()
    }

    /// Requests that were served from memory of the other kind, where the
    /// allocator counts them.
    fn fallbacks(&self) -> Option<u64> {
        None
    }

    /// Linux's fallbacks in detail.
    fn tally(&self) -> Option<&FallbackTally> {
        None
    }
}

impl GreenZone for LinuxZone<Vec<u64>, FallbackTally> {
    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        let words = LinuxZone::<Vec<u64>>::storage_words(place.span);
        let zone = LinuxZone::new(place.map, place.span, PAGEBLOCK_ORDER, vec![0; words]);
        Ok(zone.map_err(|error| error.to_string())?.observed(FallbackTally::default()))
    }

    fn fallbacks(&self) -> Option<u64> {
        Some(self.observer().total())
    }

    fn tally(&self) -> Option<&FallbackTally> {
        Some(self.observer())
    }
}

impl GreenZone for ArrayBuddy<Vec<u64>> {
    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        let ZonePlace { map, span, banks } = *place;
        let words = Self::storage_words(map, span, banks, &Array);
        let zone = words.and_then(|words| Self::new(map, span, banks, Array, vec![0; words]));
        zone.map_err(|error| error.to_string())
    }
}

impl GreenZone for ListBuddy<Vec<u64>> {
    fn build(place: &ZonePlace<'_>, _: AllocatorName) -> Result<Self, String> {
        let ZonePlace { map, span, banks } = *place;
        let list = List::new(true);
        let words = Self::storage_words(map, span, banks, &list);
        let zone = words.and_then(|words| Self::new(map, span, banks, list, vec![0; words]));
        zone.map_err(|error| error.to_string())
    }
}

impl GreenZone for AdaptiveBuddy<Vec<u64>> {
    const RESTS: bool = true;

    fn build(place: &ZonePlace<'_>, name: AllocatorName) -> Result<Self, String> {
        let ZonePlace { map, span, banks } = *place;
        let packed = name == AllocatorName::AdaptivePacked;
        let pools = Pools::new(if packed { Policy::PACKED } else { Policy::PAPER });
        let words = Self::storage_words(map, span, banks, &pools);
        let zone = words.and_then(|words| Self::new(map, span, banks, pools, vec![0; words]));
        zone.map_err(|error| error.to_string())
    }

    fn pool(&self, frame: Pfn) -> Option<Pool> {
        self.bank_of(frame).and_then(|bank| self.bank(bank)).and_then(|bank| bank.pool)
    }

    /// The paper empties banks of POOL_USER. Packed, those of POOL_KERNEL from
    /// which the kernel's last frame is gone are emptied, too.
    fn may_be_emptied(&self, frame: Pfn) -> bool {
        self.policy() == Policy::PACKED || self.pool(frame) == Some(Pool::User)
    }

    /// The paper moves frames within POOL_USER. A bank with kernel memory never
    /// rests, so that, packed, its free frames serve as well, up to what the
    /// kernel may need soon.
    fn take_target(&mut self, order: Order) -> Option<Pfn> {
        let lent = lent_frames(self);
        let own = self.take_own(order, Pool::User);
        let may_lend = own.is_none() && lent >= order.frames();
        own.or_else(|| may_lend.then(|| self.take_own(order, Pool::Kernel)).flatten())
    }

    fn target_frames(&self) -> u64 {
        self.pool_free_frames(Pool::User) + lent_frames(self)
    }

    fn fallbacks(&self) -> Option<u64> {
        let moves = self.moves();
        Some(moves.stolen + moves.borrowed)
    }
}

/// Frames kept free in a zone's POOL_KERNEL when others are moved there: an
/// eighth of a bank.
const KERNEL_RESERVE_FRAMES: u64 = swath_frame::layout::BANK_FRAMES / 8;

/// Free frames of POOL_KERNEL that may serve what is moved.
fn lent_frames(zone: &AdaptiveBuddy<Vec<u64>>) -> u64 {
    match zone.policy() == Policy::PACKED {
        true => zone.pool_free_frames(Pool::Kernel).saturating_sub(KERNEL_RESERVE_FRAMES),
        false => 0,
    }
}
