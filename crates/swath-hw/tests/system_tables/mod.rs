//! ARMv7 tables written word by word, for the tests of the timed system.

// Each test uses a part.
use swath_arch::{
    Coalescing, ContiguityField, Format, Order, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory,
    VirtAddr,
};
use swath_hw::{
    Geometry, Mmu, System, SystemConfig, SystemStats, Transaction, Translate, WalkOrder,
};

/// The root is at 0; the leaf table of a MiB is here, 32 KiB (one bank of the paper's
/// memory) from the next, with the words beside it a frame later.
pub(crate) const LEAVES: u64 = 0x8000;
const LEAF_DISTANCE: u64 = 0x8000;
/// MiB of virtual addresses that have tables.
pub(crate) const MIBS: u64 = 8;

pub(crate) const IDEAL: ContiguityField = ContiguityField::Beside { bits: 16 };
pub(crate) const TRAD: Coalescing = Coalescing::None;
pub(crate) const PCAD: Coalescing = Coalescing::Pcad(IDEAL);
pub(crate) const AT: Coalescing = Coalescing::Anchor { field: IDEAL, distance: Order::known(3) };

pub(crate) struct Tables<'m> {
    pub(crate) memory: SliceMemory<'m>,
}

impl<'m> Tables<'m> {
    pub(crate) fn new(words: &'m mut Vec<u64>) -> Self {
        words.clear();
        words.resize(((LEAVES + MIBS * LEAF_DISTANCE) / 8) as usize, 0);
        let memory = SliceMemory::new(Pfn::new(0), words);
        for mib in 0..MIBS {
            let table = LEAVES + mib * LEAF_DISTANCE;
            memory.write_u32(PhysAddr::new(mib * 4), table as u32 | 1).unwrap();
        }
        Self { memory }
    }

    /// Where the descriptor of a page stands.
    pub(crate) fn leaf(page: u64) -> u64 {
        LEAVES + (page >> 8) * LEAF_DISTANCE + (page & 255) * 4
    }

    /// Maps a block, with what PCAD and AT (at distance 8) say of it.
    pub(crate) fn map(&self, page: u64, frame: u64, count: u64, flags: u32) {
        for i in 0..count {
            let at = Self::leaf(page + i);
            let ascend = count - 1 - i;
            let word = (frame + i) as u32;
            self.memory.write_u32(PhysAddr::new(at), word << 12 | flags).unwrap();
            let beside = ascend as u32 | (i as u32) << 16;
            self.memory.write_u32(PhysAddr::new(at + 4096), beside).unwrap();
        }
    }

    /// What AT reads: at each anchor, how many pages are contiguous from it on.
    pub(crate) fn map_anchors(&self, page: u64, frame: u64, count: u64, flags: u32) {
        self.map(page, frame, count, flags);
        for i in (0..count).filter(|i| (page + i).is_multiple_of(8)) {
            let at = PhysAddr::new(Self::leaf(page + i) + 4096);
            self.memory.write_u32(at, (count - i) as u32).unwrap();
        }
    }
}

/// A small page that unprivileged masters may read and write, or only read.
pub(crate) const DATA: u32 = 0x03e;
pub(crate) const READ_ONLY: u32 = 0x23e;

pub(crate) fn regime(coalescing: Coalescing) -> Regime {
    Regime { format: Format::ArmV7, root: PhysAddr::new(0), coalescing }
}

pub(crate) fn mmu(coalescing: Coalescing) -> Mmu {
    Mmu::new(regime(coalescing), Geometry::default(), WalkOrder::default()).unwrap()
}

pub(crate) fn read(addr: u64) -> Transaction {
    Transaction { addr: VirtAddr::new(addr), write: false }
}

pub(crate) fn write(addr: u64) -> Transaction {
    Transaction { addr: VirtAddr::new(addr), write: true }
}

/// Runs a system to its end.
pub(crate) fn run<T: Translate>(
    config: &SystemConfig,
    tables: &Tables<'_>,
    masters: impl IntoIterator<Item = (T, Vec<Transaction>)>,
) -> SystemStats {
    let masters = masters.into_iter().map(|(mmu, stream)| (mmu, stream.into_iter()));
    System::new(config, masters).unwrap().run(&tables.memory).unwrap()
}

/// Lines of a buffer one after the other.
pub(crate) fn raster(start: u64, count: u64) -> Vec<Transaction> {
    (0..count).map(|n| read(start + 64 * n)).collect()
}
