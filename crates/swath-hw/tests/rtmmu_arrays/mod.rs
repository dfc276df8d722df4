//! The arrays of 32 pages and a unit that reads them, for the tests of the RTMMU.

// Each test uses a part.
use swath_arch::{PhysAddr, SliceMemory, ValidityTables, VirtAddr, validity};
use swath_hw::{Geometry, Operation, PageTable, RtLatency, RtTables, Rtmmu};

pub(crate) const K: u32 = 5;
pub(crate) const PAGES: u64 = 1 << K;
pub(crate) const BASE: PhysAddr = PhysAddr::new(0x3000);
pub(crate) const ARRAYS: ValidityTables = ValidityTables::consecutive(K, BASE);
pub(crate) const TABLE: PageTable = PageTable { pages_log2: K, base: ARRAYS.data };
pub(crate) const OPERATIONS: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Fetch];

/// The arrays of 32 pages as the words of four bytes that they are.
#[derive(Clone)]
pub(crate) struct Arrays(pub(crate) Vec<u32>);

impl Arrays {
    pub(crate) fn at(base: PhysAddr, index: u64) -> usize {
        ((base.raw() - BASE.raw()) / 4 + index) as usize
    }

    pub(crate) fn set(&mut self, base: PhysAddr, index: u64, word: u64) {
        self.0[Self::at(base, index)] = word as u32;
    }

    /// Region [4, 12) with pages 9, 4, 6 mapped in this order to frames 0x100 + page; rights
    /// as given.
    pub(crate) fn example(rights: u64) -> Self {
        let mut arrays = Self(vec![0; 160]);
        for (page, place) in [(9, 4), (4, 5), (6, 6)] {
            arrays.set(ARRAYS.regions, page, 4);
            arrays.set(ARRAYS.helper, page, place);
            arrays.set(ARRAYS.stack, place, page);
            arrays.set(ARRAYS.data, page, validity::FRAME.set(rights, 0x100 + page));
        }
        arrays.set(ARRAYS.stack_end, 4, 7);
        arrays
    }

    pub(crate) fn with<T>(&self, body: impl FnOnce(&SliceMemory<'_>) -> T) -> T {
        let mut words: Vec<u64> =
            self.0.chunks(2).map(|pair| u64::from(pair[1]) << 32 | u64::from(pair[0])).collect();
        body(&SliceMemory::new(BASE.frame(), &mut words))
    }

    /// The data word of a mapped page, by the three conditions word for word.
    pub(crate) fn data(&self, page: u64) -> Option<u32> {
        let array = |base: PhysAddr| &self.0[Self::at(base, 0)..][..PAGES as usize];
        let page = page as usize;
        let a = array(ARRAYS.regions)[page] as usize;
        let j = array(ARRAYS.helper)[page] as usize;
        let first = a <= page;
        let second = first && a <= j && j < array(ARRAYS.stack_end)[a] as usize;
        let third = second && array(ARRAYS.stack).get(j).is_some_and(|&b| b as usize == page);
        third.then(|| array(ARRAYS.data)[page])
    }
}

pub(crate) fn byte(page: u64) -> VirtAddr {
    VirtAddr::new(page << 12 | 0x123)
}

pub(crate) fn arrays_unit(latency: RtLatency, tlb: Option<Geometry>) -> Rtmmu {
    Rtmmu::new(RtTables::regions(ARRAYS).unwrap(), latency, tlb).unwrap()
}
