//! Pages of the kernel's hugetlb pools for tests.

use std::fs;
use std::path::PathBuf;

/// More pages in a pool of the kernel, as long as this lives.
pub(crate) struct Pool {
    folder: PathBuf,
    before: u64,
    pages: u64,
}

impl Pool {
    /// Raises the pool of pages of `kib` KiB by `pages`, and says if it got them all.
    pub(crate) fn raised(kib: usize, pages: u64) -> Option<Self> {
        let folder = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB"));
        let read = |name: &str| -> Option<u64> {
            fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
        };
        let before = read("nr_hugepages").unwrap_or(0);
        let surplus = read("surplus_hugepages").unwrap_or(0);
        let _ = fs::write(folder.join("nr_hugepages"), (before + surplus + pages).to_string());
        let free = read("free_hugepages").zip(read("resv_hugepages"));
        let free = free.map_or(0, |(free, promised)| free - promised);
        let pool = Self { folder, before, pages: free };
        if pool.pages >= pages {
            return Some(pool);
        }
        println!("skipped: {free} pages of {kib} KiB instead of {pages}");
        None
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("nr_hugepages"), self.before.to_string());
    }
}
