//! Gates on the buffer pool: a malloc and a free as the C library makes them, on one
//! thread, with the slow ways that come between.

use std::ptr::NonNull;

use swath_pool::{
    BufferOptions, BufferPool, Claim, FirstFit, HeapSlot, Live, LocalHeap, Returned, Storage,
    Superblock, UNIT_BYTES, dirty_words,
};

use crate::random::Random;
use crate::setup::SpinLock;

const CALLS: usize = 1 << 16;

/// Units of the arena, whose memory is never touched.
const UNITS: usize = 4096;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// So many blocks of 64 bytes from an empty heap.
    Get,
    /// They come back in random order: every superblock becomes empty.
    Put,
    /// A random one comes back and one of up to 512 bytes is taken: two calls.
    Pair,
    /// Of 1,024 blocks of mostly short lengths a random one comes back and one is taken: two calls.
    Steady,
    /// Of 512 blocks of 2 to 32 KiB a random one comes back and one is taken: two calls.
    Medium,
    /// Of 256 segments of 40 to 100 kB a random one comes back and one is taken: two calls.
    Long,
    /// Another heap's blocks come back in random order.
    PutRemote,
    /// Blocks from superblocks to which another thread returned all slots.
    GetReturned,
}

type Pool<'m> = BufferPool<'m, SpinLock, FirstFit<Vec<u64>>>;
type Heap<'p, 'm> = LocalHeap<'p, 'm, SpinLock, FirstFit<Vec<u64>>>;

/// Runs the calls; how many there were.
pub(crate) fn gate(call: Call, counted: fn(&mut dyn FnMut())) -> Result<u64, String> {
    let mut superblocks: Vec<_> = (0..UNITS).map(|_| Superblock::new()).collect();
    let mut returned: Vec<_> = (0..UNITS).map(|_| Returned::new()).collect();
    let mut live: Vec<_> = (0..UNITS).map(|_| Live::new()).collect();
    let mut claims: Vec<_> = (0..UNITS).map(|_| Claim::new()).collect();
    let mut heaps = [HeapSlot::new(), HeapSlot::new()];
    let mut dirty = vec![0; dirty_words(UNITS)];
    let storage = Storage {
        superblocks: &mut superblocks,
        returned: &mut returned,
        live: &mut live,
        claims: &mut claims,
        heaps: &mut heaps,
        dirty: &mut dirty,
    };
    // The pool keeps nothing in the memory that it hands out, and nor do we.
    let base = NonNull::new(std::ptr::without_provenance_mut(UNIT_BYTES)).ok_or("no base")?;
    let words = vec![0; FirstFit::<Vec<u64>>::words(UNITS as u32)];
    let source = FirstFit::new(UNIT_BYTES, UNITS as u32, words, false);
    // SAFETY: nobody touches the memory.
    let pool = unsafe { Pool::new(base, storage, source, BufferOptions::default()) }
        .map_err(|error| error.to_string())?;
    let (mut heap, mut other) =
        pool.attach().zip(pool.attach()).ok_or("two slots give two heaps")?;
    let calls = measure(call, &mut heap, &mut other, counted)?;
    pool.check().map_err(|fault| fault.to_string())?;
    Ok(calls)
}

fn measure<'p, 'm>(
    call: Call,
    heap: &mut Heap<'p, 'm>,
    other: &mut Heap<'p, 'm>,
    counted: fn(&mut dyn FnMut()),
) -> Result<u64, String> {
    let mut random = Random::new(1);
    let mut sizes = vec![64_usize; CALLS];
    if call == Call::Pair {
        sizes.fill_with(|| 1 + random.below(512) as usize);
    }
    if call == Call::Steady {
        // The share of blocks that are longer than 4 times a number is one in that number.
        sizes.fill_with(|| (4 << 16) / (random.below(1 << 16) as usize + 16));
    }
    if call == Call::Medium {
        sizes.fill_with(|| (2 << 10) + random.below((30 << 10) + 1) as usize);
    }
    if call == Call::Long {
        sizes.fill_with(|| 40_000 + random.below(60_001) as usize);
    }
    let live = match call {
        Call::Steady => 1024,
        Call::Medium => 512,
        Call::Long => 256,
        _ => CALLS,
    };
    let mut blocks = vec![NonNull::dangling(); live];
    let mut failed = 0_u64;
    let mut get = |heap: &mut Heap<'_, '_>, blocks: &mut [NonNull<u8>]| {
        for block in blocks {
            match heap.allocate(64, 16) {
                Ok(new) => *block = new,
                Err(_) => failed += 1,
            }
        }
    };
    match call {
        Call::Get => counted(&mut || get(heap, &mut blocks)),
        Call::GetReturned => {
            get(heap, &mut blocks);
            random.shuffle(&mut blocks);
            // SAFETY: not used after.
            let freed = blocks.iter().filter(|&&block| unsafe { other.free(block) }.is_ok());
            if freed.count() != CALLS {
                return Err("a free failed".into());
            }
            counted(&mut || get(heap, &mut blocks));
        }
        _ => get(heap, &mut blocks),
    }
    let mut seen = blocks.clone();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0].addr().get() + 64 > pair[1].addr().get()) {
        return Err("two blocks overlap".into());
    }
    random.shuffle(&mut blocks);
    let from = if call == Call::PutRemote { other } else { heap };
    match call {
        Call::Put | Call::PutRemote => counted(&mut || {
            for &block in &blocks {
                // SAFETY: not used after.
                failed += u64::from(unsafe { from.free(block) }.is_err());
            }
        }),
        Call::Pair => counted(&mut || {
            for (block, &size) in blocks.iter_mut().zip(&sizes) {
                // SAFETY: not used after.
                failed += u64::from(unsafe { from.free(*block) }.is_err());
                match from.allocate(size, 16) {
                    Ok(new) => *block = new,
                    Err(_) => failed += 1,
                }
            }
        }),
        Call::Steady | Call::Medium | Call::Long => {
            let pick = |random: &mut Random| random.below(live as u64) as usize;
            let picks: Vec<usize> = sizes.iter().map(|_| pick(&mut random)).collect();
            let mut turn = || {
                for (&pick, &size) in picks.iter().zip(&sizes) {
                    // SAFETY: not used after.
                    failed += u64::from(unsafe { from.free(blocks[pick]) }.is_err());
                    match from.allocate(size, 16) {
                        Ok(new) => blocks[pick] = new,
                        Err(_) => failed += 1,
                    }
                }
            };
            turn();
            counted(&mut turn);
        }
        Call::Get | Call::GetReturned => {}
    }
    if failed != 0 {
        return Err(format!("{failed} calls failed"));
    }
    let pairs = matches!(call, Call::Pair | Call::Steady | Call::Medium | Call::Long);
    Ok(if pairs { 2 * CALLS as u64 } else { CALLS as u64 })
}
