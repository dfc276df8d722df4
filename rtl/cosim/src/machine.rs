//! The simulated system of `rtl/system`: its memories, and the host at its registers.

use std::cell::Cell;
use std::ptr::NonNull;

use swath_arch::{BusError, PhysAddr, PhysMemory};
use swath_hw::RtLatency;

/// The memories: where each begins, and its bytes.
const MEMORIES: [(u32, usize); 3] =
    [(0x2000_0000, 4 << 20), (0x3000_0000, 4 << 20), (0x4000_0000, 3 << 30)];

/// The words of the memories beside the core.
pub struct Memories([Box<[Cell<u32>]>; 3]);

impl Memories {
    /// Memories that hold zeros; the system takes none of it for granted but the stack ends, which it clears.
    pub fn new() -> Self {
        // What is not touched takes no memory here.
        Self(MEMORIES.map(|(_, bytes)| {
            let words = Box::<[Cell<u32>]>::new_zeroed_slice(bytes / 4);
            // SAFETY: four bytes of zeros are such a cell.
            unsafe { words.assume_init() }
        }))
    }

    fn word(&self, addr: u32) -> Option<&Cell<u32>> {
        MEMORIES
            .iter()
            .zip(&self.0)
            .find_map(|(&(base, _), words)| words.get((addr.checked_sub(base)? / 4) as usize))
    }
}

impl PhysMemory for Memories {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        let error = BusError { addr, len_bytes: 4 };
        let word = u32::try_from(addr.raw()).ok().filter(|addr| addr % 4 == 0);
        word.and_then(|addr| self.word(addr)).map(Cell::get).ok_or(error)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        let (low, high) = (self.read_u32(addr)?, self.read_u32(addr + 4)?);
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    /// # Errors
    /// Always: the bench only looks.
    fn write_u32(&self, addr: PhysAddr, _: u32) -> Result<(), BusError> {
        Err(BusError { addr, len_bytes: 4 })
    }

    /// # Errors
    /// Always: the bench only looks.
    fn write_u64(&self, addr: PhysAddr, _: u64) -> Result<(), BusError> {
        Err(BusError { addr, len_bytes: 8 })
    }
}

/// The one who stands at the host's registers.
pub trait Host {
    /// The program reads a register, by its byte.
    fn read(&mut self, register: u32, memories: &Memories) -> u32;
    /// The program writes one. After a write to register 0 the simulation ends.
    fn write(&mut self, register: u32, value: u32, memories: &Memories);
}

/// What stands behind the wires of the system that runs.
struct Bench<'a> {
    program: &'a [u32],
    memories: &'a Memories,
    host: &'a mut dyn Host,
}

thread_local! {
    static BENCH: Cell<Option<NonNull<Bench<'static>>>> = const { Cell::new(None) };
}

/// Calls `f` with the bench of the system that runs on this thread.
fn with_bench<R>(f: impl FnOnce(&mut Bench<'static>) -> R) -> R {
    let mut bench = BENCH.get().expect("a system runs");
    // SAFETY: `run` has put it there, has no reference to it itself, and takes it away before it ends. The simulation
    // calls the three functions below one after the other, and none of them calls into it.
    f(unsafe { bench.as_mut() })
}

#[unsafe(no_mangle)]
extern "C" fn system_program(index: u32) -> u32 {
    with_bench(|bench| bench.program.get(index as usize).copied().unwrap_or(0))
}

#[unsafe(no_mangle)]
extern "C" fn system_memory(addr: u32, strobe: u32, data: u32) -> u32 {
    with_bench(|bench| {
        let word = bench.memories.word(addr).expect("the memory knows its size");
        let before = word.get();
        if strobe != 0 {
            let mask = (0..4)
                .filter(|byte| strobe >> byte & 1 != 0)
                .fold(0, |mask, byte| mask | 0xff << (8 * byte));
            word.set(before & !mask | data & mask);
        }
        before
    })
}

#[unsafe(no_mangle)]
extern "C" fn system_host_read(register: u32) -> u32 {
    with_bench(|bench| bench.host.read(register, bench.memories))
}

#[unsafe(no_mangle)]
extern "C" fn system_host_write(register: u32, value: u32) {
    with_bench(|bench| bench.host.write(register, value, bench.memories));
}

unsafe extern "C" {
    fn system_regions_run(fast: u8, table: u8, data: u8, cycles_max: u64) -> u64;
    fn system_table_run(fast: u8, table: u8, data: u8, cycles_max: u64) -> u64;
}

/// Runs a system, the conventional one or the paper's, until its program ends; returns the cycles that it took, or
/// `None` if it did not end within `cycles_max`.
pub fn run(
    conventional: bool,
    latency: RtLatency,
    program: &[u32],
    memories: &Memories,
    host: &mut dyn Host,
    cycles_max: u64,
) -> Option<u64> {
    let mut bench = Bench { program, memories, host };
    BENCH.set(Some(NonNull::from(&mut bench).cast()));
    let [fast, table, data] =
        [latency.fast, latency.table, latency.data].map(|cycles| cycles as u8);
    let run = if conventional { system_table_run } else { system_regions_run };
    // SAFETY: the shim runs the system on this thread, with the bench that stands there.
    let cycles = unsafe { run(fast, table, data, cycles_max) };
    BENCH.set(None);
    (cycles > 0).then_some(cycles)
}
