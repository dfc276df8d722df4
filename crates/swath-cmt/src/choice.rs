//! What can be chosen, by the program or by the environment.

use core::ffi::CStr;

/// How `cmt_malloc` works. Fill it with `cmt_options_default` first, so that it stays right
/// when members are added.
///
/// Each member can be set by the environment too, by the name beside it; the environment
/// counts where the program does not call `cmt_init`. A value that is no number or out of
/// range is the default.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct cmt_options {
    /// `SWATH_ARENA_MIB`: addresses to reserve, which bound all memory together. They cost
    /// nothing. 2 to 16777216 (16 TiB), by default twice the machine's memory, or less in a process
    /// whose addresses are limited.
    pub arena_mib: u64,
    /// `SWATH_HUGETLB`: 1 takes pages of the kernel's hugetlb pools as far as there are any,
    /// of 1 GiB for segments that hold them whole, else of 2 MiB. Before a fork what is in use
    /// of them is copied to other pages for the child: the pool may have none for it. Default 1.
    pub hugetlb: u32,
    /// `SWATH_THP`: 1 asks for transparent huge pages of 2 MiB. Default 1.
    pub thp: u32,
    /// `SWATH_POPULATE`: 1 touches segments of 2 MiB and more when they are allocated, and with the
    /// right to know physical addresses picks and orders their pages so that they are as
    /// contiguous as can be. Default 2: 1, but 0 in the library that overrides malloc.
    pub populate: u32,
    /// `SWATH_PURGE_MS`: how long memory that is free stays with the process before it goes
    /// back to the system, in ms. Default 1000.
    pub purge_ms: u64,
    /// `SWATH_EMPTY_EIGHTHS`: the emptiness threshold f in eighths, 1 to 7: a superblock that is
    /// so empty may go to other threads. Default 7.
    pub empty_eighths: u32,
    /// `SWATH_GUARD`: 1 puts an address range that faults behind every segment. Default 0.
    pub guard: u32,
    /// `SWATH_QUARANTINE`: how many freed blocks of a thread wait before they may be handed
    /// out again, so that a use after free is not at once another's. Up to 4096; default 0.
    pub quarantine: u32,
    /// `SWATH_ON_ERROR`: what a wrong pointer given to `cmt_free` comes to: 0, nothing; 1,
    /// a line on standard error; 2, that and an abort. Default 2.
    pub on_error: u32,
}

/// The most blocks of a quarantine.
pub const QUARANTINE_MAX: u32 = 4096;

impl cmt_options {
    /// The defaults.
    pub fn new() -> Self {
        // SAFETY: both only ask.
        let (pages, page_bytes) =
            unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        let memory = u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0);
        Self {
            arena_mib: (memory >> 19).clamp(64 << 10, ARENA_MIB_MAX),
            hugetlb: 1,
            thp: 1,
            populate: 2,
            purge_ms: 1000,
            empty_eighths: 7,
            guard: 0,
            quarantine: 0,
            on_error: 2,
        }
    }

    /// The environment's choices in place of the defaults.
    pub fn from_environment() -> Self {
        let mut options = Self::new();
        let mut try_one = |name: &CStr, set: fn(&mut Self, u64)| {
            let mut changed = options;
            if let Some(value) = number(name) {
                set(&mut changed, value);
                if changed.check().is_ok() {
                    options = changed;
                }
            }
        };
        try_one(c"SWATH_ARENA_MIB", |o, value| o.arena_mib = value);
        try_one(c"SWATH_HUGETLB", |o, value| o.hugetlb = small(value));
        try_one(c"SWATH_THP", |o, value| o.thp = small(value));
        try_one(c"SWATH_POPULATE", |o, value| o.populate = small(value));
        try_one(c"SWATH_PURGE_MS", |o, value| o.purge_ms = value);
        try_one(c"SWATH_EMPTY_EIGHTHS", |o, value| o.empty_eighths = small(value));
        try_one(c"SWATH_GUARD", |o, value| o.guard = small(value));
        try_one(c"SWATH_QUARANTINE", |o, value| o.quarantine = small(value));
        try_one(c"SWATH_ON_ERROR", |o, value| o.on_error = small(value));
        options
    }

    /// Whether the environment says how long the arena is.
    pub fn names_arena() -> bool {
        number(c"SWATH_ARENA_MIB").is_some()
    }

    /// Whether every member is in range; else the first value that is not.
    pub fn check(&self) -> Result<(), u64> {
        let wrong = |value: u64| Err(value);
        if !(2..=ARENA_MIB_MAX).contains(&self.arena_mib) {
            return wrong(self.arena_mib);
        }
        for flag in [self.hugetlb, self.thp, self.guard] {
            if flag > 1 {
                return wrong(flag.into());
            }
        }
        if !(1..=7).contains(&self.empty_eighths) {
            return wrong(self.empty_eighths.into());
        }
        if self.quarantine > QUARANTINE_MAX {
            return wrong(self.quarantine.into());
        }
        if self.populate > 2 {
            return wrong(self.populate.into());
        }
        if self.on_error > 2 {
            return wrong(self.on_error.into());
        }
        Ok(())
    }
}

const ARENA_MIB_MAX: u64 = 16 << 20;

/// A value that is too large for a flag stays so.
fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A decimal number of the environment.
fn number(name: &CStr) -> Option<u64> {
    // SAFETY: read once, early, as every allocator does.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end with a zero.
    let digits = unsafe { CStr::from_ptr(value) }.to_bytes();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(digit.into()) }
    })
}
