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

    /// Takes over an open file.
    ///
    /// # Safety
    /// It is open, and nobody else closes it.
    pub(crate) unsafe fn of(file: i32) -> Self {
        Self(file)
    }

    /// Returns its number.
    pub(crate) fn number(&self) -> i32 {
        self.0
    }

    /// Asks the file's driver, and returns 0 if it did what was asked.
    ///
    /// # Safety
    /// `argument` is as this request has it.
    pub(crate) unsafe fn control(&self, request: libc::c_ulong, argument: *mut u8) -> i32 {
        // SAFETY: as the caller says.
        unsafe { libc::ioctl(self.0, request, argument) }
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

/// Reads the beginning of a file.
pub(crate) fn read<'b>(path: &CStr, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
    let len = File::open(path)?.read_at(bytes, 0)?;
    bytes.get(..len)
}

/// Returns the decimal number behind `name` in the first 4 KiB of a file.
pub(crate) fn number_in(path: &CStr, name: &[u8]) -> Option<u64> {
    let mut bytes = [0; 4096];
    number_behind(read(path, &mut bytes)?, name)
}

fn number_behind(text: &[u8], name: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find(|line| line.starts_with(name))?;
    let digits = line[name.len()..].trim_ascii_start();
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    core::str::from_utf8(&digits[..len]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_files() {
        let text = b"MemTotal:  24 kB\nMemAvailable:   17 kB\n";
        assert_eq!(number_behind(text, b"MemAvailable:"), Some(17));
        assert_eq!(number_behind(text, b"MemNone:"), None);
        assert_eq!(number_behind(b"max\n", b""), None);
        assert_eq!(number_behind(b"5000\n", b""), Some(5000));
        assert_eq!(number_behind(b"99999999999999999999999", b""), None);
    }
}
