//! Holding frames in place.
//!
//! A page that a device may be at is pinned: the kernel neither moves it nor, at a fork, lets parent and
//! child share it. A program has that for buffers that it registers with an io_uring. Where the kernel
//! has none, or forbids it, memory is only locked: it is not written out, but may be moved when memory is
//! compacted, and after a fork the first write makes a copy. Memory of a dma-heap stays by itself.

use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use core::ptr;

use crate::error::PinError;
use crate::process::state::{Process, begun};
use crate::source::backing::Backing;

/// Registers buffers with an io_uring; unregisters them.
const REGISTER_BUFFERS: c_int = 0;
const UNREGISTER_BUFFERS: c_int = 1;
/// The longest buffer that can be registered.
const BUFFER_BYTES_MAX: usize = 1 << 30;
/// The most buffers of one pin.
const BUFFERS_MAX: usize = 256;
/// In place of a ring: the memory is only locked.
const LOCKED: c_int = -1;
/// In place of a ring: the frames stay anyway.
const STAYS: c_int = -2;
/// Words of the kernel's `struct io_uring_params`.
const PARAMS_WORDS: usize = 30;

/// The force with which memory is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Held {
    /// Its frames stay the same.
    Frames,
    /// It stays in memory, but the kernel may move it to other frames.
    Memory,
}

/// Memory that is held until this is dropped. The child of a fork does not hold it.
#[derive(Debug)]
pub struct Pin {
    /// The ring that the buffers are registered with, [`LOCKED`] or [`STAYS`].
    ring: c_int,
    start: usize,
    len_bytes: usize,
}

impl Pin {
    /// Returns the force with which the memory is held.
    #[must_use]
    pub fn held(&self) -> Held {
        if self.ring == LOCKED { Held::Memory } else { Held::Frames }
    }

    /// Returns ring, address and length, for C to keep; the memory stays held.
    #[must_use]
    pub fn into_raw(self) -> (c_int, usize, usize) {
        let pin = ManuallyDrop::new(self);
        (pin.ring, pin.start, pin.len_bytes)
    }

    /// Makes a pin of the parts of [`into_raw`](Self::into_raw) again.
    ///
    /// # Safety
    /// They are from there, and no other pin was made of them.
    #[must_use]
    pub unsafe fn from_raw((ring, start, len_bytes): (c_int, usize, usize)) -> Self {
        Self { ring, start, len_bytes }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: a ring of this pin's own, or addresses, which may have been unmapped meanwhile.
        unsafe {
            if self.ring >= 0 {
                // At once: what a fork's child has of the ring would keep the buffers.
                let none = ptr::null::<c_void>();
                libc::syscall(libc::SYS_io_uring_register, self.ring, UNREGISTER_BUFFERS, none, 0);
                libc::close(self.ring);
                note(self.start, self.len_bytes, false);
            } else if self.ring == LOCKED {
                libc::munlock(ptr::without_provenance(self.start), self.len_bytes);
            }
        }
    }
}

/// Holds the pages of `len_bytes` bytes from `start` on in their frames until the pin is dropped, as far
/// as the kernel has a way: [`Pin::held`] says how far. Pages that are not there yet come first.
///
/// ```
/// use swath_cmt::Held;
///
/// let block = swath_cmt::allocate(3 << 20)?;
/// match swath_cmt::pin(block.as_ptr(), 3 << 20) {
///     Ok(pin) if pin.held() == Held::Frames => println!("a device may know its addresses"),
///     Ok(_) => println!("only locked: no io_uring here"),
///     Err(error) => println!("{error}"),
/// }
/// // SAFETY: it is in use, and not used after.
/// unsafe { swath_cmt::free(block) };
/// # Ok::<(), swath_cmt::OutOfMemory>(())
/// ```
///
/// # Errors
/// [`PinError`]: no memory can be written there, or the process may not lock so much.
pub fn pin(start: *const u8, len_bytes: usize) -> Result<Pin, PinError> {
    if len_bytes == 0 || start.addr().checked_add(len_bytes).is_none() {
        return Err(PinError { errno: libc::EINVAL });
    }
    let stays = |process: &Process| {
        process.pool.with_source(|source| source.is_held(start.addr(), len_bytes))
    };
    if begun().is_some_and(stays) {
        return Ok(Pin { ring: STAYS, start: start.addr(), len_bytes });
    }
    // Before: a fork does not move what is about to be pinned.
    note(start.addr(), len_bytes, true);
    if let Some(ring) = register(start, len_bytes) {
        return Ok(Pin { ring, start: start.addr(), len_bytes });
    }
    note(start.addr(), len_bytes, false);
    // SAFETY: contents stay as they are.
    if unsafe { libc::mlock(start.cast(), len_bytes) } == 0 {
        return Ok(Pin { ring: LOCKED, start: start.addr(), len_bytes });
    }
    // SAFETY: the thread's own.
    Err(PinError { errno: unsafe { *libc::__errno_location() } })
}

/// Counts a pin more or less of the pool's memory.
fn note(start: usize, len_bytes: usize, more: bool) {
    if let Some(process) = begun() {
        let pages = process.pool.with_source(Backing::pages);
        pages.note_pin(start..start.saturating_add(len_bytes), more);
        // A fork that is about to move them has done so then.
        drop(pages.gate());
    }
}

/// Registers the pages as buffers of a new io_uring, and returns it.
fn register(start: *const u8, len_bytes: usize) -> Option<c_int> {
    let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    let mut buffers = [empty; BUFFERS_MAX];
    let count = len_bytes.div_ceil(BUFFER_BYTES_MAX);
    for (index, buffer) in buffers.get_mut(..count)?.iter_mut().enumerate() {
        let offset = index * BUFFER_BYTES_MAX;
        buffer.iov_base = start.wrapping_add(offset).cast_mut().cast();
        buffer.iov_len = BUFFER_BYTES_MAX.min(len_bytes - offset);
    }
    let mut params = [0_u32; PARAMS_WORDS];
    // SAFETY: the kernel writes its parameters there; the ring is closed on failure.
    unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr());
        let ring = c_int::try_from(ring).ok().filter(|&ring| ring >= 0)?;
        let (buffers, register) = (buffers.as_ptr(), libc::SYS_io_uring_register);
        if libc::syscall(register, ring, REGISTER_BUFFERS, buffers, count) != 0 {
            libc::close(ring);
            return None;
        }
        Some(ring)
    }
}
