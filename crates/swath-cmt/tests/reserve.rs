//! The physical reserve on this machine. Each test is a process of its own, since the pool is one for
//! a process; what needs frame numbers says so and passes where the kernel does not show them.

mod alone;
mod pool;

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::time::Instant;

use crate::alone::alone;
use crate::pool::Pool;
use swath_cmt::{
    ContiguousError, Hugetlb, Options, OutOfMemory, Pages, Placement, begin_with, reserve_extents,
    stats,
};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const PAGE: usize = 4096;

/// The frames behind a block, read here; `None` if the kernel does not say.
fn frames(block: NonNull<u8>, len: usize) -> Option<Vec<u64>> {
    let map = fs::File::open("/proc/self/pagemap").ok()?;
    let mut entries = vec![0; len.div_ceil(PAGE) * 8];
    map.read_exact_at(&mut entries, (block.addr().get() / PAGE * 8) as u64).ok()?;
    let entries = entries.as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry));
    let frames: Vec<u64> = entries.map(|entry| entry & ((1 << 55) - 1)).collect();
    frames.iter().all(|&frame| frame != 0).then_some(frames)
}

/// The runs that frames make.
fn runs(frames: &[u64]) -> usize {
    frames.chunk_by(|a, b| a + 1 == *b).count()
}

/// True if frame numbers can be read; if not, says that a test does without.
fn known() -> bool {
    let byte = Box::new(1_u8);
    let at = NonNull::from(&*byte);
    let at = NonNull::new(at.as_ptr().map_addr(|at| at & !(PAGE - 1))).expect("not null");
    let known = frames(at, 1).is_some();
    if !known {
        println!("skipped: frame numbers cannot be read (no CAP_SYS_ADMIN)");
    }
    known
}

/// True if transparent huge pages may be asked for.
fn has_thp() -> bool {
    let mut enabled = String::new();
    let file = fs::File::open("/sys/kernel/mm/transparent_hugepage/enabled");
    let read = file.and_then(|mut file| file.read_to_string(&mut enabled));
    let has = read.is_ok() && !enabled.contains("[never]");
    if !has {
        println!("skipped: no transparent huge pages");
    }
    has
}

fn begin(reserve_bytes: usize, hugetlb: Hugetlb) {
    let options = Options { reserve_bytes: reserve_bytes as u64, hugetlb, ..Options::default() };
    begin_with(options).expect("a pool");
}

fn free(block: NonNull<u8>) {
    // SAFETY: a block in use that the caller does not use after.
    unsafe { swath_cmt::free(block) };
}

/// The places that the extents have for blocks of `len` bytes, in `windows` at multiples of it.
fn places(len: usize, windows: bool) -> usize {
    let places = |extent: swath_cmt::ReserveExtent| {
        let start = extent.physical.expect("known").raw() as usize;
        let end = start + extent.len_bytes as usize;
        let first = if windows { start.next_multiple_of(len) } else { start };
        end.saturating_sub(first) / len
    };
    extents().into_iter().map(places).sum()
}

/// Twelve blocks of 20 MiB, as many as 256 MiB hold: each is one run of frames if the machine had runs
/// for all, else as many as the extents have room for; each keeps what is written.
fn twelve_blocks_are_one_run_each() {
    let len = 20 * MIB;
    let room = places(len, false).min(12);
    if room < 12 {
        println!("in part: the runs of this machine's free memory have room for {room} blocks");
    }
    let blocks: Vec<_> = (0..12)
        .map(|byte| {
            let block = swath_cmt::allocate(len).expect("memory");
            // SAFETY: a block of that length.
            unsafe { block.write_bytes(byte, len) };
            block
        })
        .collect();
    let mut whole = 0;
    for (byte, &block) in (0_u8..).zip(&blocks) {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), len) };
        assert!(bytes.iter().all(|&is| is == byte));
        let runs = runs(&frames(block, len).expect("known"));
        println!("block {byte}: {runs} runs");
        whole += usize::from(runs == 1);
    }
    println!("{:?}", stats());
    assert!(whole >= room, "of 12 blocks of 20 MiB {whole} are one run, with room for {room}");
    let held = stats();
    blocks.into_iter().for_each(free);
    let freed = stats();
    assert_eq!(freed.reserve_bytes, held.reserve_bytes, "the reserve stays");
    assert!(freed.reserve_free_bytes >= held.reserve_free_bytes + (room * len) as u64);
}

#[test]
fn blocks_of_transparent_huge_pages_are_one_run_each() {
    alone("blocks_of_transparent_huge_pages_are_one_run_each", || {
        if !known() || !has_thp() {
            return;
        }
        let start = Instant::now();
        begin(256 * MIB, Hugetlb::Never);
        println!("taken in {} ms", start.elapsed().as_millis());
        let stats = stats();
        assert!(stats.reserve_bytes >= 256 * MIB as u64, "{stats:?}");
        assert!(stats.reserve_bytes <= 384 * MIB as u64, "{stats:?}");
        assert_eq!(stats.reserve_free_bytes, stats.reserve_bytes);
        twelve_blocks_are_one_run_each();
    });
}

#[test]
fn a_long_block_without_a_reserve_is_ordered() {
    alone("a_long_block_without_a_reserve_is_ordered", || {
        if !known() || !has_thp() {
            return;
        }
        begin(0, Hugetlb::Never);
        let block = swath_cmt::allocate(6 * MIB).expect("memory");
        let frames = frames(block, 6 * MIB).expect("known");
        if stats().ordered_bytes == 0 {
            println!("skipped: the kernel has no huge pages");
        } else {
            assert_eq!(stats().ordered_bytes, 6 * MIB as u64);
            assert!(runs(&frames) <= 3, "{} runs of three huge pages", runs(&frames));
            let firsts: Vec<u64> = frames.iter().copied().step_by(512).collect();
            assert!(firsts.is_sorted() && firsts.iter().all(|first| first % 512 == 0));
        }
        free(block);
        assert_eq!((stats().reserve_bytes, stats().reserve_extents), (0, 0));
    });
}

/// Pages of the hugetlb pool, too, lie in the order of their frames, and the longest runs of them are picked.
#[test]
fn a_long_block_of_hugetlb_pages_is_ordered() {
    alone("a_long_block_of_hugetlb_pages_is_ordered", || {
        let Some(_pool) = Pool::raised(2048, 60).filter(|_| known()) else { return };
        let options = Options { hugetlb: Hugetlb::Always, ..Options::default() };
        begin_with(options).expect("a pool");
        let len = 20 * MIB;
        let blocks = [3, 4].map(|byte| {
            let block = swath_cmt::allocate(len).expect("memory");
            // SAFETY: a block of that length.
            unsafe { block.write_bytes(byte, len) };
            block
        });
        if stats().hugetlb_2m_bytes < 2 * len as u64 {
            return println!("skipped: without userfaultfd no pages of the pool");
        }
        assert_eq!(stats().ordered_bytes, 2 * len as u64);
        for block in blocks {
            let frames = frames(block, len).expect("known");
            let firsts: Vec<u64> = frames.iter().copied().step_by(512).collect();
            assert!(firsts.is_sorted() && firsts.iter().all(|first| first % 512 == 0));
            println!("{} runs of ten pages", runs(&frames));
            free(block);
        }
    });
}

/// The extents of the reserve.
fn extents() -> Vec<swath_cmt::ReserveExtent> {
    let mut extents = Vec::new();
    reserve_extents(|extent| extents.push(extent));
    extents
}

#[test]
fn blocks_of_hugetlb_pages_are_one_run_each() {
    alone("blocks_of_hugetlb_pages_are_one_run_each", || {
        // As on a machine whose pool is there from the start on: what it has beyond is a choice.
        let Some(_pool) = Pool::raised(2048, 700).filter(|_| known()) else { return };
        begin(256 * MIB, Hugetlb::Default);
        let extents = extents();
        println!("{extents:?}");
        assert!(extents.iter().all(|extent| extent.pages == Pages::Hugetlb2M));
        twelve_blocks_are_one_run_each();
    });
}

#[test]
fn a_page_of_a_gibibyte_is_one_extent() {
    alone("a_page_of_a_gibibyte_is_one_extent", || {
        let Some(_pool) = Pool::raised(MIB, 1).filter(|_| known()) else { return };
        begin(256 * MIB, Hugetlb::Default);
        let [extent] = extents()[..] else { panic!("{:?}", extents()) };
        assert_eq!((extent.pages, extent.len_bytes), (Pages::Hugetlb1G, GIB as u64));
        let long = swath_cmt::allocate_contiguous(512 * MIB, Placement::ANY).expect("half of it");
        assert_eq!(runs(&frames(long, 512 * MIB).expect("known")), 1);
        twelve_blocks_are_one_run_each();
        free(long);
    });
}

/// A contiguous block lies where it may, or there is none; the reserve grows for it.
#[test]
fn contiguous_blocks_lie_where_they_may() {
    alone("contiguous_blocks_lie_where_they_may", || {
        if !known() || !has_thp() {
            return;
        }
        begin(64 * MIB, Hugetlb::Never);
        let ask = swath_cmt::allocate_contiguous;
        let place = |block| frames(block, PAGE).expect("known")[0] * PAGE as u64;
        let mut blocks = Vec::new();
        for align_bytes in [1, PAGE as u64, 1 << 16, 1 << 20, 4 << 20, 16 << 20] {
            let placement = Placement { align_bytes, ..Placement::ANY };
            match ask(3 * MIB, placement) {
                Ok(block) => {
                    assert_eq!(place(block) % align_bytes, 0);
                    assert_eq!(runs(&frames(block, 3 * MIB).expect("known")), 1);
                    blocks.push(block);
                }
                Err(error) => {
                    // Chance has it that no run holds such a multiple.
                    assert!(align_bytes > 2 << 20, "{error} at {align_bytes}");
                }
            }
        }
        blocks.drain(..).for_each(free);
        let bounded = Placement { boundary_bytes: Some(4 << 20), ..Placement::ANY };
        for _ in 0..places(4 * MIB, true).min(6) {
            let block = ask(3 * MIB, bounded).expect("memory");
            assert_eq!(place(block) >> 22, (place(block) + 3 * MIB as u64 - 1) >> 22);
            blocks.push(block);
        }
        let small = Placement { boundary_bytes: Some(8192), ..Placement::ANY };
        blocks.push(ask(8192, small).expect("memory"));
        assert_eq!(ask(8193, small), Err(OutOfMemory.into()));
        // Memory below 1 MiB is nobody's; nor is there a block of half the machine.
        let low = Placement { below: 1 << 20, ..Placement::ANY };
        assert_eq!(ask(MIB, low), Err(OutOfMemory.into()));
        assert_eq!(ask(usize::MAX / 2, Placement::ANY), Err(OutOfMemory.into()));
        for placement in [
            Placement { align_bytes: 24, ..Placement::ANY },
            Placement { boundary_bytes: Some(24), ..Placement::ANY },
        ] {
            assert_eq!(ask(1, placement), Err(ContiguousError::NoPowerOfTwo { value: 24 }));
        }
        // What does not fit makes it longer, if the kernel has such a run; else nothing changes.
        let before = stats();
        let len = before.reserve_bytes as usize;
        if let Ok(block) = ask(len, Placement::ANY) {
            assert!(stats().reserve_bytes >= before.reserve_bytes + len as u64, "{:?}", stats());
            assert_eq!(runs(&frames(block, len).expect("known")), 1);
            blocks.push(block);
        } else {
            assert_eq!(stats().reserve_bytes, before.reserve_bytes);
        }
        blocks.into_iter().for_each(free);
        // What the thread keeps of short ones is in use until then.
        swath_cmt::purge(swath_cmt::Purge::All);
        assert_eq!(stats().reserve_free_bytes + borders(), stats().reserve_bytes);
    });
}

/// Bytes at the borders of extents that touch, which are in no block.
fn borders() -> u64 {
    let end =
        |extent: &swath_cmt::ReserveExtent| extent.physical.map(|at| at.raw() + extent.len_bytes);
    let touch =
        |pair: &[swath_cmt::ReserveExtent]| end(&pair[0]) == pair[1].physical.map(|at| at.raw());
    extents().windows(2).filter(|pair| touch(pair)).count() as u64 * (64 << 10)
}

/// A process that may not know frames has a reserve all the same.
#[test]
fn without_the_right_to_know_frames_all_works() {
    alone("without_the_right_to_know_frames_all_works", || {
        // SAFETY: of this process alone; as root it drops the right, else it has none.
        unsafe { libc::setresuid(65534, 65534, 65534) };
        begin(64 * MIB, Hugetlb::Never);
        let now = stats();
        assert_eq!((now.physical_known, now.reserve_bytes), (false, 64 * MIB as u64), "{now:?}");
        let [extent] = extents()[..] else { panic!("{:?}", extents()) };
        assert_eq!(extent.physical, None);
        let placement =
            Placement { align_bytes: 4096, boundary_bytes: Some(32 << 20), ..Placement::ANY };
        let block = swath_cmt::allocate_contiguous(20 * MIB, placement).expect("memory");
        let other = swath_cmt::allocate_zeroed(30 * MIB).expect("memory");
        let inside = |block: NonNull<u8>| {
            let end = extent.address + extent.len_bytes as usize;
            (extent.address..end).contains(&block.addr().get())
        };
        assert!(inside(block) && inside(other));
        assert!(swath_cmt::virt2phys(block.as_ptr(), 1).is_err());
        // SAFETY: a block of that length.
        let bytes = unsafe { std::slice::from_raw_parts(other.as_ptr(), 30 * MIB) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        // The reserve grows for what does not fit.
        let long = swath_cmt::allocate(40 * MIB).expect("memory");
        assert!(stats().reserve_bytes >= 104 * MIB as u64, "{:?}", stats());
        assert!(!inside(long) && extents().len() == 2);
        [block, other, long].into_iter().for_each(free);
        // What was used is zeroed for the next who wants zeroes.
        let again = swath_cmt::allocate(30 * MIB).expect("memory");
        // SAFETY: as above.
        unsafe { again.write_bytes(9, 30 * MIB) };
        free(again);
        let zeroed = swath_cmt::allocate_zeroed(30 * MIB).expect("memory");
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(zeroed.as_ptr(), 30 * MIB) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        free(zeroed);
    });
}

/// A block shrinks, and grows to its extent's end, where it is; a write beyond the extent faults.
#[test]
fn a_block_of_the_reserve_changes_its_length_in_place() {
    alone("a_block_of_the_reserve_changes_its_length_in_place", || {
        begin(64 * MIB, Hugetlb::Never);
        let before = stats();
        if before.reserve_longest_bytes < 16 * MIB as u64 {
            println!("skipped: memory is in too small pieces");
            return;
        }
        let block = swath_cmt::allocate(16 * MIB).expect("memory");
        // SAFETY: a block in use, of which only the result is used.
        unsafe {
            block.write(5);
            for len in [4 * MIB, 16 * MIB, MIB, 12 * MIB] {
                let resized = swath_cmt::resize(block, len).expect("memory");
                assert_eq!((resized, resized.read()), (block, 5));
                let held = before.reserve_free_bytes - stats().reserve_free_bytes;
                assert_eq!(held, len as u64);
            }
        }
        free(block);
        assert_eq!(stats().reserve_free_bytes, before.reserve_free_bytes);
        swath_cmt::purge(swath_cmt::Purge::All);
        assert_eq!(stats().reserve_bytes, before.reserve_bytes);
        let extent = extents()[0];
        // SAFETY: the child reads where nothing is, and is ended.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let behind = extent.address + extent.len_bytes as usize;
                std::ptr::with_exposed_provenance::<u8>(behind).read_volatile();
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
        }
    });
}

/// The frames of pinned blocks stay where they are when memory is compacted, and when a fork's parent
/// and child both write.
#[test]
fn pinned_blocks_keep_their_frames() {
    alone("pinned_blocks_keep_their_frames", || {
        if !known() || !has_thp() {
            return;
        }
        begin(96 * MIB, Hugetlb::Never);
        let len = 20 * MIB;
        let blocks: Vec<_> = (0..4).map(|_| swath_cmt::allocate(len).expect("memory")).collect();
        let pins: Vec<_> =
            blocks.iter().map(|block| swath_cmt::pin(block.as_ptr(), len).expect("root")).collect();
        let stay = pins.iter().all(|pin| pin.held() == swath_cmt::Held::Frames);
        let before: Vec<_> =
            blocks.iter().map(|&block| frames(block, len).expect("known")).collect();
        let compacted = fs::write("/proc/sys/vm/compact_memory", "1").is_ok();
        println!("compacted: {compacted}; pinned by io_uring: {stay}");
        // SAFETY: the child only writes to blocks, which it has, and exits.
        unsafe {
            let child = libc::fork();
            for block in &blocks {
                block.write_bytes(if child == 0 { 1 } else { 2 }, len);
            }
            if child == 0 {
                let wrote = |block: &NonNull<u8>| block.add(len - 1).read() == 1;
                libc::_exit(if blocks.iter().all(wrote) { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0);
            assert!(blocks.iter().all(|block| block.add(len - 1).read() == 2));
        }
        let after: Vec<_> =
            blocks.iter().map(|&block| frames(block, len).expect("known")).collect();
        if stay {
            assert_eq!(after, before, "the frames of pinned blocks");
        } else {
            println!("skipped: only locked, so a fork may move them");
        }
        drop(pins);
        blocks.into_iter().for_each(free);
        let nowhere = std::ptr::without_provenance(64);
        assert!(swath_cmt::pin(nowhere, 100).is_err() && swath_cmt::pin(nowhere, 0).is_err());
    });
}

/// A block whose pages a fork shares and its parent writes to, while the child lives, lies in pieces of 4 KiB; it is
/// mended by a purge, and by calls that take long in the time after the fork. What is shared stays shared.
#[test]
fn what_a_fork_broke_up_is_mended() {
    alone("what_a_fork_broke_up_is_mended", || {
        if !known() || !has_thp() {
            return;
        }
        let options = Options { purge_delay_ms: 0, hugetlb: Hugetlb::Never, ..Options::default() };
        begin_with(options).expect("a pool");
        let len = 20 * MIB;
        let pieces = |block| runs(&frames(block, len).expect("known"));
        let [block, shared] = [5, 6].map(|byte| {
            let block = swath_cmt::allocate(len).expect("memory");
            // SAFETY: a block of that length.
            unsafe { block.write_bytes(byte, len) };
            block
        });
        if pieces(block).max(pieces(shared)) > 20 {
            return println!("skipped: the kernel has no huge pages");
        }
        let before = frames(shared, len);
        for is_told in [true, false] {
            let (reads, writes) = std::io::pipe().expect("a pipe");
            // SAFETY: the child calls only the kernel, and ends once the pipe is closed.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop(writes);
                let mut byte = [0];
                let ended = (&reads).read(&mut byte);
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(ended.is_err())) };
            }
            // SAFETY: a block of that length.
            unsafe { block.write_bytes(7, len) };
            let broken = pieces(block);
            if broken <= 10 {
                println!("in part: the kernel's copies lie in order by themselves");
            }
            let start = Instant::now();
            if is_told {
                swath_cmt::purge(swath_cmt::Purge::All);
            } else {
                while pieces(block) > 10 && start.elapsed().as_secs() < 60 {
                    swath_cmt::purge(swath_cmt::Purge::Due);
                }
            }
            let mended = pieces(block);
            println!("{broken} pieces, {mended} after {} ms", start.elapsed().as_millis());
            assert!(mended <= 10, "{mended} pieces of ten huge pages");
            assert_eq!(frames(shared, len), before, "nobody has written there");
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), len) };
            assert!(bytes.iter().all(|&byte| byte == 7));
            drop((reads, writes));
            let mut status = 0;
            // SAFETY: this process's child.
            unsafe { assert_eq!(libc::waitpid(child, &mut status, 0), child) };
            assert_eq!(status, 0);
        }
        [block, shared].into_iter().for_each(free);
    });
}

/// A reserve that children do not have keeps its frames when the parent writes after a fork, without pins.
/// The child frees what it cannot touch, and has blocks of its own.
fn a_fork_leaves_the_reserve(hugetlb: Hugetlb) {
    let options =
        Options { reserve_bytes: 64 << 20, dontfork: true, hugetlb, ..Options::default() };
    begin_with(options).expect("a pool");
    let len = 20 * MIB;
    let block = swath_cmt::allocate_contiguous(len, Placement::ANY);
    let Ok(block) = block else {
        println!("skipped: memory is in too small pieces");
        return;
    };
    let before = frames(block, len).expect("known");
    let fork = |does: &dyn Fn()| {
        // SAFETY: the child calls only this library, and ends.
        unsafe {
            let child = libc::fork();
            block.write_bytes(if child == 0 { 0 } else { 2 }, if child == 0 { 0 } else { len });
            if child == 0 {
                does();
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        }
    };
    let good = fork(&|| {
        let own: Vec<_> = (0..3).map(|_| swath_cmt::allocate(len)).collect();
        for own in own.into_iter().map(|own| own.expect("memory")) {
            // SAFETY: a block of that length.
            unsafe { own.write_bytes(1, len) };
            free(own);
        }
        free(block);
        // Its place is as good as any other then.
        for size in [len, 2 * len, 100_000] {
            let again = swath_cmt::allocate_zeroed(size).expect("memory");
            // SAFETY: as above.
            assert!(unsafe { (0..size).all(|at| again.add(at).read() == 0) });
        }
        assert_eq!(stats().reserve_bytes, 0);
        let more = swath_cmt::allocate_contiguous(MIB, Placement::ANY);
        assert!(more.is_err() || stats().reserve_bytes >= MIB as u64);
    });
    assert_eq!(good, 0, "how the child ended");
    // SAFETY: a block in use, which the child does not have.
    let read = || unsafe { block.as_ptr().read_volatile() };
    let touched = fork(&|| assert_eq!(read(), 0, "it is there"));
    assert!(libc::WIFSIGNALED(touched) && libc::WTERMSIG(touched) == libc::SIGSEGV);
    assert_eq!(frames(block, len).expect("known"), before);
    // SAFETY: as above.
    assert_eq!(unsafe { block.add(len - 1).read() }, 2);
    free(block);
    assert_eq!(stats().reserve_free_bytes + borders(), stats().reserve_bytes);
}

#[test]
fn a_fork_leaves_a_reserve_of_transparent_huge_pages() {
    alone("a_fork_leaves_a_reserve_of_transparent_huge_pages", || {
        if known() && has_thp() {
            a_fork_leaves_the_reserve(Hugetlb::Never);
        }
    });
}

#[test]
fn a_fork_leaves_a_reserve_of_hugetlb_pages() {
    alone("a_fork_leaves_a_reserve_of_hugetlb_pages", || {
        if let Some(_pool) = Pool::raised(2048, 60).filter(|_| known()) {
            a_fork_leaves_the_reserve(Hugetlb::Default);
        }
    });
}
