//! Files read without a heap: this is used from within an allocation.

use core::ffi::CStr;

/// An open file that is closed in the end.
pub(crate) struct File(i32);

impl File {
    /// Opens a file for reading.
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a path that ends with a zero.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (file >= 0).then_some(Self(file))
    }

    /// Reads at an offset, and returns the number of bytes read.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        let offset = libc::off_t::try_from(offset).ok()?;
        // SAFETY: the buffer is as long as it is said to be.
        let read = unsafe { libc::pread(self.0, bytes.as_mut_ptr().cast(), bytes.len(), offset) };
        usize::try_from(read).ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: opened above, closed once.
        unsafe { libc::close(self.0) };
    }
}
