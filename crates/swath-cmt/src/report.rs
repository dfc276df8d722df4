//! The report of a wrong pointer, without a heap.

use core::fmt;

use crate::error::FreeError;
use crate::options::OnError;
use crate::process::state::begun;

/// Reports a wrong pointer as the options say.
#[cold]
#[inline(never)]
pub(crate) fn report(error: FreeError) {
    let Some(process) = begun() else { return };
    if process.options.on_error == OnError::Ignore {
        return;
    }
    let mut line = Line { bytes: [0; 128], len: 0 };
    // What does not fit is left out.
    let _ = fmt::Write::write_fmt(&mut line, format_args!("swath: free: {error}\n"));
    // SAFETY: as many bytes as were written.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
    if process.options.on_error == OnError::Abort {
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}

/// A line of text on the stack.
struct Line {
    bytes: [u8; 128],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}
