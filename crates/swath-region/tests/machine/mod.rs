//! Shared by the tests of regions: memory that starts full of garbage, and the
//! hardware's rule for when a page is mapped, written from `swath_arch::validity`.

use std::cell::{Cell, RefCell};

use swath_arch::{BusError, PhysAddr, PhysMemory, ValidityTables};

/// Words of four bytes from address 0 on. A word that was never written holds what
/// `garbage` says when it is first read, and keeps it.
pub(crate) struct Memory<G> {
    words: RefCell<Vec<Option<u32>>>,
    garbage: G,
    /// Accesses until the one that fails; 0 for none.
    pub(crate) fail_in: Cell<u64>,
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: Cell<u64>,
}

impl<G: Fn(usize) -> u32> Memory<G> {
    pub(crate) fn new(len_bytes: u64, garbage: G) -> Self {
        let words = RefCell::new(vec![None; len_bytes as usize / 4]);
        let (fail_in, reads, writes) = Default::default();
        Self { words, garbage, fail_in, reads, writes }
    }

    /// Puts a value where the operating system would not.
    pub(crate) fn poke(&self, base: PhysAddr, index: u64, value: u32) {
        self.words.borrow_mut()[(base.raw() / 4 + index) as usize] = Some(value);
    }

    /// Reads and writes since the last call.
    pub(crate) fn take_counts(&self) -> (u64, u64) {
        (self.reads.take(), self.writes.take())
    }

    fn index(&self, addr: PhysAddr) -> Result<usize, BusError> {
        let fail_in = self.fail_in.get();
        self.fail_in.set(fail_in.saturating_sub(1));
        let index = addr.raw() as usize / 4;
        let exists = addr.is_aligned(2) && index < self.words.borrow().len();
        if exists && fail_in != 1 { Ok(index) } else { Err(BusError { addr, len_bytes: 4 }) }
    }
}

impl<G: Fn(usize) -> u32> PhysMemory for Memory<G> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        let index = self.index(addr)?;
        self.reads.set(self.reads.get() + 1);
        let word = self.words.borrow()[index];
        Ok(word.unwrap_or_else(|| {
            let word = (self.garbage)(index);
            self.words.borrow_mut()[index] = Some(word);
            word
        }))
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        Err(BusError { addr, len_bytes: 8 })
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        let index = self.index(addr)?;
        self.writes.set(self.writes.get() + 1);
        self.words.borrow_mut()[index] = Some(value);
        Ok(())
    }

    fn write_u64(&self, addr: PhysAddr, _: u64) -> Result<(), BusError> {
        Err(BusError { addr, len_bytes: 8 })
    }
}

/// Frame and rights of a mapped page as an RTMMU finds them, or `None` for a fault.
pub(crate) fn hardware(
    memory: &impl PhysMemory,
    tables: &ValidityTables,
    page: u64,
) -> Option<(u64, u32)> {
    let read = |base: PhysAddr, index: u64| {
        assert!(index < 1 << tables.pages_log2, "entry {index} is read");
        memory.read_u32(PhysAddr::new(base.raw() + 4 * index)).unwrap()
    };
    let start = read(tables.regions, page);
    if u64::from(start) > page {
        return None;
    }
    let at = read(tables.helper, page);
    if at < start || at >= read(tables.stack_end, start.into()) {
        return None;
    }
    if u64::from(read(tables.stack, at.into())) != page {
        return None;
    }
    let data = read(tables.data, page);
    Some((u64::from(data >> 3), data & 7))
}
