//! Memory whose writers wait, by the kernel's userfaultfd.
//!
//! While a thread replaces pages that others may write to, a write must not get lost: whoever writes to
//! protected memory sleeps until the protection ends, and then writes to what is there by that time.
//! Reads go on.

use core::ffi::c_int;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// The kernel's `struct uffdio_api`, and its request.
type Api = [u64; 3];
const API: u64 = 0xc018_aa3f;
const VERSION: u64 = 0xaa;
/// Pages of hugetlb pools can be protected (Linux 5.19).
const OF_HUGETLB: u64 = 1 << 12;
/// `struct uffdio_register`, and its request, to protect.
type Register = [u64; 4];
const REGISTER: u64 = 0xc020_aa00;
const REGISTER_PROTECT: u64 = 2;
/// `struct uffdio_writeprotect`, and its request.
type Protect = [u64; 3];
const PROTECT: u64 = 0xc018_aa06;
const PROTECT_ON: u64 = 1;
/// The request to `/dev/userfaultfd` for a new one.
const NEW: u64 = 0xaa00;

/// Protected memory, until this is dropped.
pub(crate) struct Protected(c_int);

impl Protected {
    /// Opens a userfaultfd that can protect pages of hugetlb pools: by the right to trace, or by that to
    /// open its device.
    fn open() -> Option<Self> {
        // SAFETY: new files, which are closed in the end; the request writes to its record.
        unsafe {
            let file = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as c_int;
            let file = if file >= 0 { file } else { Self::open_by_device() };
            if file < 0 {
                return None;
            }
            let opened = Self(file);
            let mut api: Api = [VERSION, OF_HUGETLB, 0];
            (libc::ioctl(file, API as _, &raw mut api) == 0).then_some(opened)
        }
    }

    fn open_by_device() -> c_int {
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: a path that ends with a zero; the device is closed at once.
        unsafe {
            let device = libc::open(c"/dev/userfaultfd".as_ptr(), flags);
            if device < 0 {
                return device;
            }
            let file = libc::ioctl(device, NEW as _, libc::O_CLOEXEC);
            libc::close(device);
            file
        }
    }

    /// Lets writes to `len_bytes` bytes of mapped memory wait; `None` if the kernel cannot.
    pub(crate) fn new(at: *mut u8, len_bytes: usize) -> Option<Self> {
        let opened = Self::open()?;
        let (start, len) = (at.expose_provenance() as u64, len_bytes as u64);
        let mut register: Register = [start, len, REGISTER_PROTECT, 0];
        let mut protect: Protect = [start, len, PROTECT_ON];
        // SAFETY: contents stay as they are; the kernel writes to its records.
        let done = unsafe {
            libc::ioctl(opened.0, REGISTER as _, &raw mut register) == 0
                && libc::ioctl(opened.0, PROTECT as _, &raw mut protect) == 0
        };
        done.then_some(opened)
    }
}

impl Drop for Protected {
    /// Wakes those that wait: they try their writes again.
    fn drop(&mut self) {
        // SAFETY: opened above, closed once.
        unsafe { libc::close(self.0) };
    }
}

/// Returns true if this process can protect memory. It is asked for once.
pub(crate) fn can_protect() -> bool {
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Relaxed) {
        0 => {
            let can = Protected::open().is_some();
            KNOWN.store(if can { 1 } else { 2 }, Relaxed);
            can
        }
        known => known == 1,
    }
}
