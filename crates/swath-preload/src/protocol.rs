// What library and reader agree on. The build script includes this file as well
// and hands it to the C compiler, so that it stands in one place.

/// Address of the window: within 39 bits, which every 64-bit Linux has, and
/// where neither Linux nor valgrind places anything by itself.
pub const WINDOW_ADDR: u64 = 0x53_5700_0000;

/// Pages of the window, one for each thread; from this many threads on, some
/// share a page. One more is mapped behind them, for stores that lie across.
pub const LANES: u64 = 1024;

/// Bytes of a lane.
pub const LANE_BYTES: u64 = 4096;

/// The library is there; no numbers. The first record of a process.
pub const START: u64 = 0;
/// `malloc`: size, pointer (0 if it failed).
pub const MALLOC: u64 = 1;
/// `calloc`: size, pointer (0 if it failed).
pub const CALLOC: u64 = 2;
/// `memalign` and its kin: alignment, size, pointer (0 if it failed).
pub const ALIGNED: u64 = 3;
/// `free`, before it is done: pointer.
pub const FREE: u64 = 4;
/// `realloc`, before it is done: pointer.
pub const REALLOC: u64 = 5;
/// The `realloc` that this thread began is done: size, pointer (0 if it
/// failed, and the block is as it was).
pub const REALLOCATED: u64 = 6;
