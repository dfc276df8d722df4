//! The options of the pool: the program's, or the environment's.

use core::ffi::CStr;
use core::ops::RangeInclusive;

use crate::error::OptionError;
use crate::physical::file::number_in;

/// Settings of the process's pool.
///
/// Each member can be set by the environment too, by the name beside it; the environment counts
/// where the program does not call [`begin_with`](crate::begin_with). A value there that is no
/// number or out of range is the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// `SWATH_ARENA_MIB`: addresses to reserve, which bound all memory together. They cost nothing.
    /// 2 to 16777216 (16 TiB), by default eight times the machine's memory and 256 GiB at least; less in a
    /// process whose addresses are limited, half of what it has left then, and twice the memory where
    /// the kernel counts what is only reserved.
    pub arena_mib: u64,
    /// `SWATH_RESERVE`, in bytes or with K, M or G behind the number: bytes of a physical reserve, which
    /// is taken at once. Segments come from it as one run of physical memory each, and it grows when
    /// it is full. Where free memory is in pieces the beginning takes up to 5 s. Up to
    /// [`RESERVE_MAX`](Self::RESERVE_MAX); default 0, none.
    pub reserve_bytes: u64,
    /// `SWATH_DMA_HEAP`: true takes the reserve from one of the kernel's dma-heaps first, of Swath's module or of
    /// the contiguous memory allocator (CMA), where the process may open it. Its frames stay, and Swath's
    /// are known. A fork's child has copies of its blocks. Default true.
    pub dma_heap: bool,
    /// `SWATH_DONTFORK`: true leaves the reserve to this process. A fork's child does not have its blocks:
    /// it may free them, and an access faults; the parent's keep their frames when it writes.
    /// Default false.
    pub dontfork: bool,
    /// `SWATH_HUGETLB`, 0 to 2 in the order of [`Hugetlb`]: the taking of pages of the kernel's hugetlb
    /// pools.
    pub hugetlb: Hugetlb,
    /// `SWATH_THP`: true asks for transparent huge pages of 2 MiB. Default true.
    pub thp: bool,
    /// `SWATH_POPULATE`, 0 to 2 in the order of [`Populate`]: the touching of segments of 2 MiB and
    /// more when they are allocated.
    pub populate: Populate,
    /// `SWATH_PURGE_MS`: time for which memory that is free stays with the process before it goes
    /// back to the system, in ms. Default 1000.
    pub purge_delay_ms: u64,
    /// `SWATH_BACKGROUND`: true has a thread of the library's own return that memory, even while the
    /// process does nothing. It begins with the first long block or a few slow calls, in a fork's child, too.
    /// Default false: of a thread's slow calls one in 16 returns it.
    pub background: bool,
    /// `SWATH_EMPTY_EIGHTHS`: the emptiness threshold f in eighths, 1 to 7: a superblock that is so
    /// empty may go to other threads. Default 7.
    pub empty_eighths: u32,
    /// `SWATH_SLACK`: number of superblocks of one size and that emptiness which a thread keeps all the
    /// same (the K of Hoard). Up to [`SLACK_MAX`](Self::SLACK_MAX); default 4.
    pub slack: u32,
    /// `SWATH_HEAPS`: number of threads that have a heap of their own at a time (the paper's P); all
    /// others share one more, behind a lock. 1 to 8191, the default.
    pub heaps: u32,
    /// `SWATH_GUARD`: true puts an address range that faults behind every segment. Default false.
    pub guard: bool,
    /// `SWATH_QUARANTINE`: number of freed blocks of a thread that wait before they may be
    /// allocated again, so that a use after free is not at once another's; 32 MiB wait at most. A slot is zero
    /// meanwhile, and a write to it is reported in the end; a segment faults but for its last 64 KiB, which are zero. With
    /// one, blocks have canaries, by which those that wait are known. Up to
    /// [`QUARANTINE_MAX`](Self::QUARANTINE_MAX); default 0.
    pub quarantine: u32,
    /// `SWATH_CANARY`: true puts a word behind every block that its free, or a resize, looks at: a
    /// write beyond the bytes that were asked for, or before the block if that is not the first of its superblock, is
    /// reported as a wrong pointer is. It takes 8 bytes of each block, and every call the slow path. The bytes that may
    /// be used are those that were asked for then. Default false.
    pub canary: bool,
    /// `SWATH_ON_ERROR`, 0 to 2 in the order of [`OnError`]: the consequence of a wrong pointer.
    pub on_error: OnError,
}

/// The taking of pages of the kernel's hugetlb pools: as far as there are any, of 1 GiB for segments that
/// hold them whole, else of 2 MiB.
///
/// A fork's child would need such pages for its copies, which the pool may not have. So before a process's
/// first fork what is in use of them moves to other pages, and no more are taken; other threads
/// that write to them wait for a piece of 32 MiB, or of 1 GiB, at most. What is [pinned](crate::pin) stays:
/// a transfer under way to memory that is not is lost. It takes the kernel's userfaultfd (Linux 5.19;
/// CAP_SYS_PTRACE, or access to `/dev/userfaultfd`): without it no pages are taken but for a
/// reserve that children do not have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Hugetlb {
    /// None.
    Never,
    /// Any.
    Always,
    /// Any, but in a library that overrides `malloc` only for a reserve.
    #[default]
    Default,
}

/// The segments of 2 MiB and more that are touched when they are allocated. With the right to know
/// physical addresses their pages are picked and ordered then, so that they are as contiguous as
/// can be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Populate {
    /// None.
    Never,
    /// All.
    Always,
    /// All, but none in a library that overrides `malloc`.
    #[default]
    Default,
}

/// The consequence of a pointer that is freed or resized and is none of a block in use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnError {
    /// Nothing.
    Ignore,
    /// A line on standard error.
    Report,
    /// A line on standard error, and an abort.
    #[default]
    Abort,
}

/// Numbers the cases of an option from 0, as the environment and C have them.
macro_rules! numbered {
    ($($option:ident: $($case:ident)+;)+) => {$(
        impl TryFrom<u64> for $option {
            type Error = u64;

            /// Converts the number that the environment and C have for it; another one is the error.
            fn try_from(number: u64) -> Result<Self, u64> {
                [$(Self::$case),+]
                    .into_iter()
                    .zip(0..)
                    .find_map(|(case, its)| (its == number).then_some(case))
                    .ok_or(number)
            }
        }
    )+};
}

numbered! {
    Hugetlb: Never Always Default;
    Populate: Never Always Default;
    OnError: Ignore Report Abort;
}

impl Default for Options {
    /// The defaults, the environment not considered.
    fn default() -> Self {
        Self {
            arena_mib: arena_mib(),
            reserve_bytes: 0,
            dma_heap: true,
            dontfork: false,
            hugetlb: Hugetlb::Default,
            thp: true,
            populate: Populate::Default,
            purge_delay_ms: 1000,
            background: false,
            empty_eighths: 7,
            slack: 4,
            heaps: *Self::HEAPS.end(),
            guard: false,
            quarantine: 0,
            canary: false,
            on_error: OnError::Abort,
        }
    }
}

impl Options {
    /// Lengths that an arena may have.
    pub const ARENA_MIB: RangeInclusive<u64> = 2..=16 << 20;
    /// Thresholds of emptiness that there may be.
    pub const EMPTY_EIGHTHS: RangeInclusive<u32> = 1..=7;
    /// The most superblocks that a thread may keep of each size.
    pub const SLACK_MAX: u32 = 1024;
    /// Numbers of heaps that there may be.
    pub const HEAPS: RangeInclusive<u32> = 1..=8191;
    /// Bytes of the longest reserve that may be asked for.
    pub const RESERVE_MAX: u64 = 16 << 40;
    /// Number of blocks in the longest quarantine.
    pub const QUARANTINE_MAX: u32 = 4096;

    /// Reads the environment's options in place of the defaults.
    #[must_use]
    pub fn from_env() -> Self {
        let mut options = Self::default();
        let mut read = |name: &CStr, set: fn(Self, u64) -> Option<Self>| {
            let changed = number(name).and_then(|value| set(options, value));
            if let Some(changed) = changed.filter(|changed| changed.check().is_ok()) {
                options = changed;
            }
        };
        read(c"SWATH_ARENA_MIB", |o, value| Some(Self { arena_mib: value, ..o }));
        read(c"SWATH_RESERVE", |o, value| Some(Self { reserve_bytes: value, ..o }));
        read(c"SWATH_DMA_HEAP", |o, value| Some(Self { dma_heap: flag(value)?, ..o }));
        read(c"SWATH_DONTFORK", |o, value| Some(Self { dontfork: flag(value)?, ..o }));
        read(c"SWATH_HUGETLB", |o, value| Some(Self { hugetlb: value.try_into().ok()?, ..o }));
        read(c"SWATH_THP", |o, value| Some(Self { thp: flag(value)?, ..o }));
        read(c"SWATH_POPULATE", |o, value| Some(Self { populate: value.try_into().ok()?, ..o }));
        read(c"SWATH_PURGE_MS", |o, value| Some(Self { purge_delay_ms: value, ..o }));
        read(c"SWATH_BACKGROUND", |o, value| Some(Self { background: flag(value)?, ..o }));
        read(c"SWATH_EMPTY_EIGHTHS", |o, value| {
            Some(Self { empty_eighths: value.try_into().ok()?, ..o })
        });
        read(c"SWATH_SLACK", |o, value| Some(Self { slack: value.try_into().ok()?, ..o }));
        read(c"SWATH_HEAPS", |o, value| Some(Self { heaps: value.try_into().ok()?, ..o }));
        read(c"SWATH_GUARD", |o, value| Some(Self { guard: flag(value)?, ..o }));
        read(c"SWATH_QUARANTINE", |o, value| {
            Some(Self { quarantine: value.try_into().ok()?, ..o })
        });
        read(c"SWATH_CANARY", |o, value| Some(Self { canary: flag(value)?, ..o }));
        read(c"SWATH_ON_ERROR", |o, value| Some(Self { on_error: value.try_into().ok()?, ..o }));
        options
    }

    /// Returns true if the environment says how long the arena is.
    pub(crate) fn env_names_arena() -> bool {
        number(c"SWATH_ARENA_MIB").is_some()
    }

    /// Checks that every member is in range.
    ///
    /// ```
    /// use swath_cmt::{OptionError, Options};
    ///
    /// assert_eq!(Options::default().check(), Ok(()));
    /// let wrong = Options { empty_eighths: 8, ..Options::default() };
    /// assert_eq!(wrong.check(), Err(OptionError { name: "empty_eighths", value: 8 }));
    /// ```
    ///
    /// # Errors
    /// An [`OptionError`] for the first member that is not.
    pub fn check(&self) -> Result<(), OptionError> {
        let (arena, eighths) = (self.arena_mib, self.empty_eighths);
        let checks = [
            ("arena_mib", arena, Self::ARENA_MIB.contains(&arena)),
            ("reserve_bytes", self.reserve_bytes, self.reserve_bytes <= Self::RESERVE_MAX),
            ("empty_eighths", eighths.into(), Self::EMPTY_EIGHTHS.contains(&eighths)),
            ("slack", self.slack.into(), self.slack <= Self::SLACK_MAX),
            ("heaps", self.heaps.into(), Self::HEAPS.contains(&self.heaps)),
            ("quarantine", self.quarantine.into(), self.quarantine <= Self::QUARANTINE_MAX),
        ];
        match checks.into_iter().find(|&(.., holds)| !holds) {
            Some((name, value, _)) => Err(OptionError { name, value }),
            None => Ok(()),
        }
    }
}

/// Returns the flag that a number is.
fn flag(value: u64) -> Option<bool> {
    match value {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Returns the length of the arena where nothing says it.
fn arena_mib() -> u64 {
    let memory_mib = memory_bytes() >> 20;
    let longest = *Options::ARENA_MIB.end();
    // The tables of a long arena are mapped whole.
    if number_in(c"/proc/sys/vm/overcommit_memory", b"") == Some(2) {
        return (2 * memory_mib).min(longest);
    }
    let all = (8 * memory_mib).clamp(256 << 10, longest);
    let Some(limit) = addresses_limit() else { return all };
    let used = number_in(c"/proc/self/statm", b"").unwrap_or(0).saturating_mul(4096);
    (limit.saturating_sub(used) >> 21).clamp(*Options::ARENA_MIB.start(), all)
}

/// Returns the bytes of addresses that the process may have, if that is limited.
pub(crate) fn addresses_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: writes the limit.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns the bytes of the machine's memory.
pub(crate) fn memory_bytes() -> u64 {
    // SAFETY: both only ask.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0)
}

/// Reads a number of the environment. A program with more rights than its caller has none there.
fn number(name: &CStr) -> Option<u64> {
    // SAFETY: only asks.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: read once, early, as every allocator does.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end with a zero.
    parse(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Returns the number that decimal digits are, in units of the letter behind them.
fn parse(text: &[u8]) -> Option<u64> {
    let (digits, shift) = match text {
        [digits @ .., b'K' | b'k'] => (digits, 10),
        [digits @ .., b'M' | b'm'] => (digits, 20),
        [digits @ .., b'G' | b'g'] => (digits, 30),
        digits => (digits, 0),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(digit.into()) }
    })?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers_of_the_environment() {
        assert_eq!(parse(b"256M"), Some(256 << 20));
        assert_eq!(
            [parse(b"0"), parse(b"7k"), parse(b"1G")],
            [Some(0), Some(7 << 10), Some(1 << 30)]
        );
        for wrong in
            [&b""[..], b"M", b"-1", b"1T", b"1 M", b"18446744073709551616", b"18014398509481984K"]
        {
            assert_eq!(parse(wrong), None);
        }
    }
}
