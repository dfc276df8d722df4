//! Pages of the kernel's hugetlb pools. A process of its own, with pages that it reserves where
//! it may; where it may not, what comes in their place is checked.

use std::ffi::c_void;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};

use swath::swath_status::SWATH_OK;
use swath::*;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// More pages in a pool of the kernel, as long as this lives.
struct Reserved {
    pool: PathBuf,
    before: u64,
    pages: u64,
}

impl Reserved {
    fn new(page_kib: usize, pages: u64) -> Self {
        let pool = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{page_kib}kB"));
        let before = read(&pool, "nr_hugepages");
        let more = read(&pool, "surplus_hugepages") + pages;
        // Without the right, or without a free page, there are as many as before.
        let _ = fs::write(pool.join("nr_hugepages"), (before + more).to_string());
        let mut reserved = Self { pool, before, pages: 0 };
        reserved.pages = reserved.available();
        reserved
    }

    /// Pages that nobody has or was promised.
    fn available(&self) -> u64 {
        read(&self.pool, "free_hugepages") - read(&self.pool, "resv_hugepages")
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = fs::write(self.pool.join("nr_hugepages"), self.before.to_string());
    }
}

fn read(pool: &std::path::Path, name: &str) -> u64 {
    let text = fs::read_to_string(pool.join(name)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn stats() -> cmt_stats {
    let mut stats = cmt_stats::default();
    // SAFETY: a place to write to.
    assert_eq!(unsafe { cmt_stats_get(&mut stats, size_of::<cmt_stats>()) }.status, SWATH_OK);
    stats
}

/// The physical extents of a block, if the kernel says.
fn extents(block: *mut c_void, len: usize) -> Option<Vec<cmt_extent>> {
    let mut found = vec![cmt_extent::default(); 64];
    let mut count = 0;
    // SAFETY: a block in use, and places to write to.
    let result = unsafe { cmt_extents(block, 0, len, found.as_mut_ptr(), found.len(), &mut count) };
    found.truncate(count);
    (result.status == SWATH_OK).then_some(found)
}

/// Writes to a block in a fork's child while a thread of this process writes to another: what
/// came of the child. Neither may end because a pool has no page for a copy.
fn write_in_child(block: *mut c_void, len: usize, other: *mut c_void) -> libc::c_int {
    let stop = AtomicBool::new(false);
    // SAFETY: a block of one byte at least.
    let other = unsafe { AtomicU8::from_ptr(other.cast()) };
    // SAFETY: a block of that length; the child calls only what may be called there: this
    // library, and `_exit`.
    std::thread::scope(|scope| unsafe {
        let bytes = std::slice::from_raw_parts_mut(block.cast::<u8>(), len);
        bytes.fill(7);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                other.fetch_add(1, Relaxed);
            }
        });
        let child = libc::fork();
        if child == 0 {
            let mut good = bytes.iter().all(|&byte| byte == 7);
            bytes.fill(8);
            good &= stats().hugetlb_1g_bytes + stats().hugetlb_2m_bytes == 0;
            let more = cmt_malloc(3 * MIB);
            good &= !more.is_null();
            cmt_free(more);
            cmt_free(block);
            libc::_exit(if good { 0 } else { 1 });
        }
        let mut status = 0;
        let ended = libc::waitpid(child, &mut status, 0);
        stop.store(true, Relaxed);
        assert_eq!(ended, child);
        assert!(bytes.iter().all(|&byte| byte == 7));
        status
    })
}

#[test]
fn pages_come_from_the_longest_pool_that_has_them() {
    let huge = Reserved::new(2048, 6);
    let giant = Reserved::new(MIB, 1);
    println!("{} pages of 2 MiB and {} of 1 GiB", huge.pages, giant.pages);

    // What is no page of 1 GiB takes those of 2 MiB as far as there are any, then others: a chunk of
    // superblocks and a segment.
    let small = cmt_malloc(1);
    assert!(!small.is_null());
    let (chunk, chunks) = (2 * MIB as u64, 21_u64);
    let len = 40 * MIB;
    let block = cmt_aligned_alloc(2 * MIB, len);
    assert!(!block.is_null());
    let now = stats();
    assert_eq!(now.hugetlb_2m_bytes, huge.pages.min(chunks) * chunk, "{now:?}");
    assert_eq!(huge.available(), huge.pages.saturating_sub(chunks));
    let others = chunks.saturating_sub(huge.pages) * chunk;
    assert_eq!(now.thp_bytes + now.small_bytes, others, "{now:?}");
    if now.physical_known == 1 {
        assert!(extents(block, len).is_some(), "segments are populated in any page");
    }
    // SAFETY: a block in use.
    unsafe { cmt_free(block) };
    cmt_purge(1);
    let kept = huge.pages.min(1);
    assert_eq!((stats().hugetlb_2m_bytes, huge.available()), (kept * chunk, huge.pages - kept));
    let again = cmt_aligned_alloc(2 * MIB, len);
    assert_eq!(stats().hugetlb_2m_bytes, huge.pages.min(chunks) * chunk);

    // One of 1 GiB for a segment that holds it whole.
    let expected = giant.pages.min(1) * GIB as u64;
    if expected > 0 {
        a_giant_page(expected, &giant);
    }

    // The pools have no page for a child's copy: what is in use leaves them, and no more comes.
    for _ in 0..2 {
        assert_eq!(write_in_child(again, len, small), 0, "how the child ended");
        let now = stats();
        assert_eq!(now.hugetlb_2m_bytes + now.hugetlb_1g_bytes, 0, "{now:?}");
        assert_eq!((huge.available(), giant.available()), (huge.pages, giant.pages));
    }
    // SAFETY: blocks in use.
    unsafe { (cmt_free(again), cmt_free(small)) };
}

fn a_giant_page(expected: u64, giant: &Reserved) {
    let block = cmt_aligned_alloc(GIB, GIB);
    assert!(!block.is_null());
    assert_eq!((stats().hugetlb_1g_bytes, giant.available()), (expected, giant.pages - 1));
    // SAFETY: a block of that length.
    unsafe {
        block.cast::<u8>().write(1);
        block.cast::<u8>().add(GIB - 1).write(2);
    }
    if let Some(extents) = extents(block, GIB) {
        assert_eq!(extents.len(), 1, "{extents:?}");
        assert_eq!(extents[0].address % GIB as u64, 0);
    }
    // A page of which a part cannot go stays.
    // SAFETY: a block in use.
    assert_eq!(unsafe { cmt_realloc(block, 5 * MIB) }, block);
    cmt_purge(1);
    assert_eq!(stats().hugetlb_1g_bytes, expected);
    // SAFETY: a block in use.
    unsafe { cmt_free(block) };
}
