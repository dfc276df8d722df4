//! The memory that a study takes, estimated from its plan before it runs.
//!
//! Parts are named by the key of the plan that they grow with. Some are there once (what
//! is prepared, what all points gave), some for each point that is measured at the same
//! time. The peak is that of all of them together, so an estimate is an upper bound of what
//! is touched; **reserved** addresses, of which only a part is touched, count apart.

use crate::host::memory::kib_of;

/// Bytes of a study, by key of its plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    once: Vec<(String, u64)>,
    each: Vec<(String, u64)>,
    reserved: Vec<(String, u64)>,
}

/// The program, its input and what the smallest study takes.
const PROGRAM_BYTES: u64 = 24 << 20;

/// The most of a reserved range, beyond what is touched, that a thread's own stack and heap
/// take.
pub(crate) const THREAD_RESERVED_BYTES: u64 = 160 << 20;

/// Bytes of a product of counts, which no plan makes overflow.
pub fn bytes(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, &factor| product.saturating_mul(factor))
}

impl Needs {
    /// No more than the program itself: for studies whose plans' bounds keep them small.
    pub fn small() -> Self {
        Self::default()
    }

    /// Bytes that are there once.
    #[must_use]
    pub fn once(mut self, key: &str, bytes: u64) -> Self {
        self.once.push((key.to_owned(), bytes));
        self
    }

    /// Bytes of each point that is measured at the same time: of the largest.
    #[must_use]
    pub fn each(mut self, key: &str, bytes: u64) -> Self {
        self.each.push((key.to_owned(), bytes));
        self
    }

    /// Addresses of each such point of which few are touched.
    #[must_use]
    pub fn reserved(mut self, key: &str, bytes: u64) -> Self {
        self.reserved.push((key.to_owned(), bytes));
        self
    }

    /// Bytes of memory with so many points at the same time.
    pub fn memory_bytes(&self, threads: u64) -> u64 {
        let each = sum(&self.each).saturating_mul(threads);
        PROGRAM_BYTES.saturating_add(sum(&self.once)).saturating_add(each)
    }

    /// Bytes of addresses with so many points at the same time.
    pub fn address_bytes(&self, threads: u64) -> u64 {
        let reserved = sum(&self.reserved).saturating_add(THREAD_RESERVED_BYTES);
        self.memory_bytes(threads).saturating_add(reserved.saturating_mul(threads))
    }

    /// The most points at the same time, up to `threads`, that keep within the limits; the
    /// key of the largest part if not even one does.
    ///
    /// # Errors
    /// The key and the reason.
    pub fn threads_within(&self, threads: u64, limits: Limits) -> Result<u64, (String, String)> {
        let fits = |&threads: &u64| {
            self.memory_bytes(threads) <= limits.memory_bytes
                && self.address_bytes(threads) <= limits.address_bytes
        };
        (1..=threads.max(1)).rev().find(fits).ok_or_else(|| self.refused(limits))
    }

    fn refused(&self, limits: Limits) -> (String, String) {
        let memory = self.memory_bytes(1);
        let of_memory = memory > limits.memory_bytes;
        let parts = self.once.iter().chain(&self.each);
        let reserved = self.reserved.iter().filter(|_| !of_memory);
        let largest = parts.chain(reserved).max_by_key(|(_, bytes)| *bytes);
        let key = largest.map_or_else(|| "about".to_owned(), |(key, _)| key.clone());
        let why = if of_memory {
            let (memory, limit) = (mib(memory), mib(limits.memory_bytes));
            format!("takes about {memory} MiB of memory; the limit is {limit} (--memory-limit)")
        } else {
            let (addresses, limit) = (mib(self.address_bytes(1)), mib(limits.address_bytes));
            format!("takes about {addresses} MiB of addresses; this process may have {limit}")
        };
        (key, why)
    }
}

fn sum(parts: &[(String, u64)]) -> u64 {
    parts.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

/// Mebibytes, rounded up.
pub const fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// The most that a study may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of addresses.
    pub address_bytes: u64,
}

impl Limits {
    /// Those of this machine and process: three quarters of the memory that the machine, or
    /// the process's control group, has, and the addresses that the process may have.
    pub fn here() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let total = kib_of(&text("/proc/meminfo"), "MemTotal:").map_or(8 << 30, |kib| kib << 10);
        let group = number(Some(text("/sys/fs/cgroup/memory.max").trim())).unwrap_or(u64::MAX);
        let limits = text("/proc/self/limits");
        let addresses = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
        let addresses = number(addresses.and_then(|line| line.split_whitespace().next()));
        let address_bytes = addresses.unwrap_or(u64::MAX);
        Self { memory_bytes: (total.min(group) / 4 * 3).min(address_bytes), address_bytes }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn needs() -> Needs {
        Needs::small()
            .once("points", 100 << 20)
            .each("frames", 200 << 20)
            .reserved("pages", 4 << 30)
    }

    #[test]
    fn fewer_points_at_a_time_need_less() {
        let limit = |memory_mib: u64, address_mib: u64| Limits {
            memory_bytes: memory_mib << 20,
            address_bytes: address_mib << 20,
        };
        let threads = |limits| needs().threads_within(8, limits);
        assert_eq!(threads(limit(1 << 20, 1 << 20)), Ok(8));
        assert_eq!(threads(limit(724, 1 << 20)), Ok(3));
        assert_eq!(threads(limit(324, 1 << 20)), Ok(1));
        assert_eq!(threads(limit(323, 1 << 20)).unwrap_err().0, "frames");
        assert_eq!(threads(limit(1 << 20, 3 << 10)).unwrap_err().0, "pages");
        assert_eq!(threads(limit(1 << 20, 10 << 10)), Ok(2));
    }

    #[test]
    fn no_product_overflows() {
        assert_eq!(bytes(&[u64::MAX, 3]), u64::MAX);
        let needs = Needs::small().once("a", u64::MAX).each("b", u64::MAX).reserved("c", 1);
        assert_eq!(needs.address_bytes(u64::MAX), u64::MAX);
        let limits = Limits { memory_bytes: u64::MAX - 1, address_bytes: u64::MAX };
        assert!(needs.threads_within(1, limits).is_err());
    }
}
