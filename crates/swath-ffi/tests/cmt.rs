//! `cmt_malloc` and its kin within one process: every test of it shares the pool.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError, mpsc};

use swath::swath_status::*;
use swath::*;
use swath_arch::testing::Random;

/// Fills a block with what only it holds.
fn fill(block: *mut c_void, len: usize, with: u64) {
    // SAFETY: a block of that length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(block.cast::<u8>(), len) };
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (with as usize + index / 7) as u8;
    }
}

fn intact(block: *const c_void, len: usize, with: u64) -> bool {
    // SAFETY: a block of that length.
    let bytes = unsafe { std::slice::from_raw_parts(block.cast::<u8>(), len) };
    bytes.iter().enumerate().all(|(index, &byte)| byte == (with as usize + index / 7) as u8)
}

fn size(random: &mut Random) -> usize {
    let large = random.below(50) == 0;
    let bits = random.below(if large { 23 } else { 16 });
    random.below((1 << bits) + 1) as usize
}

/// Random calls of one thread; what is left at the end is sent to another.
fn calls(seed: u64, steps: usize, send: &mpsc::Sender<(usize, usize, u64)>) {
    let mut random = Random::new(seed);
    let mut held: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    let any = |random: &mut Random, held: &BTreeMap<usize, (usize, u64)>| {
        *held.keys().nth(random.below(held.len() as u64) as usize).expect("some")
    };
    for step in 0..steps {
        let place = format!("seed {seed}, step {step}");
        match random.below(8) {
            0..=2 => {
                let (len, with) = (size(&mut random), random.below(256));
                let zeroed = random.below(3) == 0;
                let block = if zeroed { cmt_calloc(1, len) } else { cmt_malloc(len) };
                assert!(!block.is_null(), "{place}");
                assert_eq!(block.addr() % 16, 0, "{place}");
                if zeroed {
                    // SAFETY: a new block of that length.
                    let bytes = unsafe { std::slice::from_raw_parts(block.cast::<u8>(), len) };
                    assert!(bytes.iter().all(|&byte| byte == 0), "{place}");
                }
                fill(block, len, with);
                let known = held.insert(block.expose_provenance(), (len, with));
                assert_eq!(known, None, "{place}: handed out twice");
            }
            3 => {
                let (len, align) = (size(&mut random), 1_usize << random.below(17));
                let block = cmt_aligned_alloc(align, len);
                assert_eq!(block.addr() % align, 0, "{place}");
                fill(block, len, 1);
                assert_eq!(held.insert(block.expose_provenance(), (len, 1)), None, "{place}");
            }
            4 if !held.is_empty() => {
                let at = any(&mut random, &held);
                let (old, with) = held.remove(&at).expect("held");
                let new = size(&mut random).max(1);
                // SAFETY: a block in use; only what is returned is used after.
                let block = unsafe { cmt_realloc(ptr::with_exposed_provenance_mut(at), new) };
                assert!(intact(block, old.min(new), with), "{place}");
                fill(block, new, with);
                assert_eq!(held.insert(block.expose_provenance(), (new, with)), None, "{place}");
            }
            5 if !held.is_empty() => {
                let at = any(&mut random, &held);
                let (len, with) = held.remove(&at).expect("held");
                let _ = send.send((at, len, with));
            }
            _ if !held.is_empty() => {
                let at = any(&mut random, &held);
                let (len, with) = held.remove(&at).expect("held");
                let block = ptr::with_exposed_provenance_mut(at);
                assert!(intact(block, len, with), "{place}");
                // SAFETY: a block in use.
                unsafe {
                    assert!(cmt_usable_size(block) >= len, "{place}");
                    cmt_free(block);
                }
            }
            _ => {}
        }
    }
    for (at, (len, with)) in held {
        let _ = send.send((at, len, with));
    }
}

#[test]
fn threads_exchange_blocks_and_end() {
    for round in 0..3 {
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let send = send.clone();
                scope.spawn(move || calls(round * 10 + thread, 2000, &send));
            }
            drop(send);
            for (at, len, with) in receive {
                let block = ptr::with_exposed_provenance_mut(at);
                assert!(intact(block, len, with));
                // SAFETY: a block in use, whose thread may be gone.
                unsafe { cmt_free(block) };
            }
        });
    }
    cmt_purge(1);
}

#[test]
fn limits_have_an_errno_and_lose_nothing() {
    let errno = || std::io::Error::last_os_error().raw_os_error();
    assert!(cmt_malloc(usize::MAX).is_null());
    assert_eq!(errno(), Some(libc::ENOMEM));
    assert!(cmt_calloc(1 << 40, 1 << 40).is_null());
    assert_eq!(errno(), Some(libc::ENOMEM));
    assert!(cmt_aligned_alloc(24, 8).is_null());
    assert_eq!(errno(), Some(libc::EINVAL));
    // SAFETY: null, and a pointer that is nobody's, are allowed here.
    unsafe {
        cmt_free(ptr::null_mut());
        assert_eq!(cmt_usable_size(ptr::null()), 0);
        assert_eq!(cmt_usable_size(ptr::without_provenance(4096)), 0);
        let block = cmt_malloc(100);
        fill(block, 100, 3);
        assert!(cmt_realloc(block, usize::MAX / 2).is_null());
        assert!(intact(block, 100, 3));
        assert!(cmt_realloc(block, 0).is_null());
    }
}

#[test]
fn statistics_and_the_options_once_it_has_begun() {
    let block = cmt_malloc(5 << 20);
    let mut stats = cmt_stats::default();
    // SAFETY: all pointers are to what is here; the block is freed once.
    unsafe {
        assert_eq!(cmt_stats_get(&mut stats, size_of::<cmt_stats>()).status, SWATH_OK);
        assert!(stats.segment_bytes >= 5 << 20 && stats.live_bytes >= 5 << 20, "{stats:?}");
        let backed =
            stats.hugetlb_1g_bytes + stats.hugetlb_2m_bytes + stats.thp_bytes + stats.small_bytes;
        assert!(backed >= stats.held_bytes, "{stats:?}");
        assert_eq!(cmt_init(ptr::null()).status, SWATH_OK);
        let mut options = std::mem::zeroed();
        assert_eq!(cmt_options_default(&mut options).status, SWATH_OK);
        assert_eq!(cmt_init(&options).status, SWATH_STATE);
        options.empty_eighths = 8;
        assert_eq!(cmt_init(&options), swath_result { status: SWATH_ARGUMENT, at: 8 });
        assert_eq!(cmt_stats_get(ptr::null_mut(), 8).status, SWATH_NULL);
        cmt_free(block);
    }
}

/// A fork gives the parent other frames where it writes.
static FRAMES_STAY: Mutex<()> = Mutex::new(());

#[test]
fn extents_are_the_block_or_the_kernel_does_not_say() {
    let _stay = FRAMES_STAY.lock().unwrap_or_else(PoisonError::into_inner);
    let len = 6 << 20;
    let block = cmt_malloc(len);
    let mut stats = cmt_stats::default();
    let mut extents = [cmt_extent::default(); 2000];
    // SAFETY: all pointers are to what is here; the block is freed once.
    unsafe {
        cmt_stats_get(&mut stats, size_of::<cmt_stats>());
        let ask = |offset, len, extents: &mut [cmt_extent]| {
            let (at, mut found) = (extents.as_mut_ptr(), 0);
            (cmt_extents(block, offset, len, at, extents.len(), &mut found).status, found)
        };
        assert_eq!(ask(1, len + (1 << 20), &mut extents), (SWATH_FOREIGN, 0));
        assert_eq!(ask(0, 0, &mut extents), (SWATH_EMPTY, 0));
        let (status, found) = ask(100, len - 200, &mut extents);
        if stats.physical_known == 0 {
            assert_eq!(status, SWATH_DENIED);
        } else {
            assert_eq!(status, SWATH_OK);
            let sum: u64 = extents[..found].iter().map(|extent| extent.len_bytes).sum();
            assert_eq!(sum, len as u64 - 200);
            assert_eq!(extents[0].address % 4096, (block.addr() as u64 + 100) % 4096);
            let apart =
                |pair: &[cmt_extent]| pair[0].address + pair[0].len_bytes != pair[1].address;
            assert!(extents[..found].windows(2).all(apart), "neighbours are joined");
            // What there is no room for is only counted.
            assert_eq!(ask(100, len - 200, &mut extents[..1]), (SWATH_OK, found));
        }
        cmt_free(block);
        let mut found = 0;
        assert_eq!(
            cmt_extents(ptr::without_provenance(64), 0, 1, extents.as_mut_ptr(), 1, &mut found),
            swath_result { status: SWATH_FOREIGN, at: 64 }
        );
    }
}

#[test]
fn contiguous_blocks_pins_and_the_reserve() {
    let _stay = FRAMES_STAY.lock().unwrap_or_else(PoisonError::into_inner);
    let errno = || std::io::Error::last_os_error().raw_os_error();
    let len = 3 << 20;
    let block = cmt_malloc_contiguous(len, 1 << 16, 0, 1 << 30);
    let mut stats = cmt_stats::default();
    // SAFETY: all pointers are to what is here; the block is freed once.
    unsafe {
        assert_eq!(cmt_stats_get(&mut stats, size_of::<cmt_stats>()).status, SWATH_OK);
        // An older program's struct is shorter: what is behind it stays.
        let mut older = cmt_stats { reserve_bytes: 77, ..cmt_stats::default() };
        let known = std::mem::offset_of!(cmt_stats, reserve_bytes);
        assert_eq!(cmt_stats_get(&mut older, known).status, SWATH_OK);
        assert_eq!((older.arena_bytes, older.reserve_bytes), (stats.arena_bytes, 77));
        let mut newer = [1_u8; size_of::<cmt_stats>() + 9];
        assert_eq!(cmt_stats_get(newer.as_mut_ptr().cast(), newer.len()).status, SWATH_OK);
        assert!(newer[size_of::<cmt_stats>()..].iter().all(|&byte| byte == 0));

        let mut extents = [cmt_reserve_extent::default(); 64];
        let mut found = 0;
        let asked = cmt_reserve_extents(extents.as_mut_ptr(), extents.len(), &mut found);
        assert_eq!((asked.status, found as u64), (SWATH_OK, stats.reserve_extents));
        let sum: u64 = extents[..found.min(64)].iter().map(|extent| extent.len_bytes).sum();
        assert!(found > 64 || sum == stats.reserve_bytes, "{stats:?}");
        assert_eq!(cmt_reserve_extents(ptr::null_mut(), 1, &mut found).status, SWATH_NULL);

        let mut follow = len;
        let address = cmt_virt2phys(block, &mut follow);
        if block.is_null() {
            // The kernel has no run so long.
            assert_eq!((errno(), address, follow), (Some(libc::ENOMEM), u64::MAX, 0));
        } else if stats.physical_known == 1 {
            assert_eq!((address % (1 << 16), follow), (0, len));
            let inner = cmt_virt2phys(block.cast::<u8>().add(5000).cast(), ptr::null_mut());
            assert_eq!(inner, address + 5000);
        } else {
            assert_eq!((address, follow), (u64::MAX, 0));
        }
        let nowhere = ptr::without_provenance(4096);
        assert_eq!(cmt_virt2phys(nowhere, ptr::null_mut()), u64::MAX);
        for (align, boundary) in [(3, 0), (0, 3)] {
            assert!(cmt_malloc_contiguous(1, align, 0, boundary).is_null());
            assert_eq!(errno(), Some(libc::EINVAL));
        }
        assert!(cmt_malloc_contiguous(1 << 20, 0, 1, 0).is_null());
        assert_eq!(errno(), Some(libc::ENOMEM));

        let mut pinned = cmt_pinned::default();
        let page = cmt_aligned_alloc(4096, 4096);
        let result = cmt_pin(page, 4096, &mut pinned);
        // A process without the right to lock memory may have no page to lock.
        assert!(matches!(result.status, SWATH_OK | SWATH_DENIED), "{result:?}");
        assert_eq!(pinned.len_bytes, if result.status == SWATH_OK { 4096 } else { 0 });
        assert_eq!(cmt_pin(nowhere, 4096, &mut cmt_pinned::default()).status, SWATH_DENIED);
        assert_eq!(cmt_pin(page, 4096, ptr::null_mut()).status, SWATH_NULL);
        for _ in 0..2 {
            assert_eq!(cmt_unpin(&mut pinned).status, SWATH_OK);
        }
        assert_eq!(
            (pinned, cmt_unpin(ptr::null_mut()).status),
            (cmt_pinned::default(), SWATH_NULL)
        );
        cmt_free(page);
        cmt_free(block);
    }
}

#[test]
fn a_child_of_many_threads_goes_on() {
    let _move = FRAMES_STAY.lock().unwrap_or_else(PoisonError::into_inner);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        for thread in 0..2 {
            let (send, stop) = (send.clone(), stop.clone());
            scope.spawn(move || {
                let mut seed = 100 + thread;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    calls(seed, 100, &send);
                    seed += 2;
                }
            });
        }
        let kept = cmt_malloc(1000);
        fill(kept, 1000, 9);
        for _ in 0..20 {
            // SAFETY: the child calls only what may be called there: this library, and `_exit`.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    let mut good = intact(kept, 1000, 9);
                    for size in (0..200_000).step_by(997) {
                        let block = cmt_malloc(size);
                        good &= !block.is_null();
                        cmt_free(block);
                    }
                    cmt_free(kept);
                    libc::_exit(if good { 0 } else { 1 });
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        // SAFETY: a block in use.
        unsafe { cmt_free(kept) };
    });
    drop(send);
    for (at, _, _) in receive {
        // SAFETY: a block in use that was sent here.
        unsafe { cmt_free(ptr::with_exposed_provenance_mut(at)) };
    }
}
