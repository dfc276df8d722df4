//! Swath's front for each CPU over the page buddy system with granularity 9, as the instruction
//! gates have it.

use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;

use lock_api::RawMutex;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::{Fifo, Front, Gather, OnCpu, Reuse, Slot};
use swath_frame::{
    BuddyConfig, ByteRange, FrameAllocator, HeadOfList, MemoryMap, PageBuddy, Trusting,
};

use crate::contender::{Contender, Cpu, Shared};
use crate::setup::SpinLock;

pub(crate) type Buddy = PageBuddy<Vec<u64>, HeadOfList, Trusting>;

/// Swath's front over its page buddy system, with a kind of locks, and which single frames it uses again.
pub(crate) struct Ours<U = Fifo, L = SpinLock>(PhantomData<(U, L)>);

/// Which single frames a front uses again, as it is made.
pub(crate) trait Made: Reuse + Sync + 'static {
    /// The front's name in the tables.
    const NAME: &'static str;

    /// The front that does so.
    fn made<L: RawMutex>(front: Front<'_, L, Buddy>) -> Front<'_, L, Buddy, Self>
    where
        Self: Sized;
}

impl Made for Fifo {
    const NAME: &'static str = "swath";

    fn made<L: RawMutex>(front: Front<'_, L, Buddy>) -> Front<'_, L, Buddy> {
        front
    }
}

impl Made for Gather {
    const NAME: &'static str = "swath gathers";

    fn made<L: RawMutex>(front: Front<'_, L, Buddy>) -> Front<'_, L, Buddy, Self> {
        front.gathering()
    }
}

impl<U: Made, L: RawMutex + Send + Sync + 'static> Contender for Ours<U, L> {
    const NAME: &'static str = U::NAME;

    type Shared<'m> = Front<'m, L, Buddy, U>;

    fn with<T>(
        frames: u64,
        cpus: usize,
        body: impl FnOnce(&Self::Shared<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let ranges = [ByteRange::of_frames(Extent::new(Pfn::new(0), frames))];
        let mut areas = [Extent::default()];
        let map = MemoryMap::new(&ranges, &mut areas).map_err(|error| error.to_string())?;
        let config = BuddyConfig::PBS_ARMV8;
        let words = Buddy::storage_words(&map, config);
        let buddy = Buddy::new(&map, config, vec![0; words]).map_err(|error| error.to_string())?;
        let mut bits = Vec::new();
        bits.resize_with(Front::<L, Buddy>::bits_len(&buddy), || AtomicUsize::new(0));
        let mut slots: Vec<Slot<L>> = (0..cpus).map(|_| Slot::new()).collect();
        let front = Front::new(buddy, &mut slots, &mut bits).map_err(|error| error.to_string())?;
        // On the heap, as what is on the stack costs nothing in the model of many CPUs.
        body(&Box::new(U::made(front)))
    }
}

impl<'m, L: RawMutex + Send + Sync, U: Made> Shared for Front<'m, L, Buddy, U> {
    type Cpu<'a>
        = OurCpu<'a, 'm, L, U>
    where
        Self: 'a;

    fn on(&self, cpu: usize, order: u8) -> Result<Self::Cpu<'_>, String> {
        let order = Order::new(order).ok_or("no such order")?;
        let cpu = Front::on(self, cpu).map_err(|error| error.to_string())?;
        Ok(OurCpu { cpu, order })
    }

    fn check(&self, free: u64) -> Result<(), String> {
        Front::check(self).map_err(|fault| fault.to_string())?;
        match self.free_frames() {
            counted if counted == free => Ok(()),
            counted => Err(format!("{counted} frames are free, not {free}")),
        }
    }
}

/// The front as one CPU uses it for one order.
pub(crate) struct OurCpu<'a, 'm, L, U> {
    cpu: OnCpu<'a, 'm, L, Buddy, U>,
    order: Order,
}

impl<L: RawMutex, U: Reuse> Cpu for OurCpu<'_, '_, L, U> {
    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.cpu.allocate_aligned(self.order).ok().map(|block| block.start.raw())
    }

    #[inline(always)]
    fn put(&mut self, frame: u64) -> bool {
        self.cpu.free(Extent::new(Pfn::new(frame), self.order.frames())).is_ok()
    }
}
