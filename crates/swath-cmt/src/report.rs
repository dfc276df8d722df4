//! Reports of what is wrong, without a heap.

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
    say(format_args!("swath: free: {error}\n"));
    if process.options.on_error == OnError::Abort {
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}

/// Ends the process, with a line on its standard error: for a library that has no `std` to tell of a
/// panic.
#[cold]
#[inline(never)]
pub fn abort(why: fmt::Arguments<'_>) -> ! {
    say(format_args!("swath: {why}\n"));
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// Writes a line to the standard error. What does not fit is left out.
fn say(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], len: 0 };
    let _ = fmt::Write::write_fmt(&mut line, text);
    // SAFETY: as many bytes as were written.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}

/// A line of text on the stack.
struct Line {
    bytes: [u8; 256],
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
