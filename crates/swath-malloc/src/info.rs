//! The C library's functions that tell of its heap.

use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};

use swath_cmt::{Stats, c, stats};

/// As the C library's: bytes but for the numbers of blocks, which are 0 here.
#[repr(C)]
pub struct Mallinfo2 {
    /// All that is held.
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    /// In use.
    uordblks: usize,
    /// Free.
    fordblks: usize,
    /// What `malloc_trim` would return.
    keepcost: usize,
}

/// As the C library's, with numbers that end at the greatest that they have.
#[repr(C)]
pub struct Mallinfo {
    arena: c_int,
    ordblks: c_int,
    smblks: c_int,
    hblks: c_int,
    hblkhd: c_int,
    usmblks: c_int,
    fsmblks: c_int,
    uordblks: c_int,
    fordblks: c_int,
    keepcost: c_int,
}

/// Bytes held, in use, and free but not returned.
fn bytes(stats: &Stats) -> [usize; 3] {
    let held = stats.held_bytes + stats.cached_bytes;
    [held, stats.live_bytes, stats.cached_bytes].map(|bytes| bytes as usize)
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    let [arena, uordblks, keepcost] = bytes(&stats());
    Mallinfo2 {
        arena,
        ordblks: 0,
        smblks: 0,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: 0,
        uordblks,
        fordblks: arena.saturating_sub(uordblks),
        keepcost,
    }
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let all = mallinfo2();
    let number = |bytes: usize| c_int::try_from(bytes).unwrap_or(c_int::MAX);
    Mallinfo {
        arena: number(all.arena),
        ordblks: 0,
        smblks: 0,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: 0,
        uordblks: number(all.uordblks),
        fordblks: number(all.fordblks),
        keepcost: number(all.keepcost),
    }
}

/// Takes the parameters that only say how the C library's heap is to be laid out, and returns 1 for them:
/// they have no meaning here. Returns 0 for those that would change what a program sees.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _: c_int) -> c_int {
    const M_MXFAST: c_int = 1;
    const M_ARENA_MAX: c_int = -8;
    const M_CHECK_ACTION: c_int = -5;
    const M_PERTURB: c_int = -6;
    let layout = parameter == M_MXFAST
        || (M_ARENA_MAX..0).contains(&parameter)
            && parameter != M_CHECK_ACTION
            && parameter != M_PERTURB;
    layout.into()
}

/// A text on the stack.
struct Text {
    bytes: [u8; 1024],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte stays 0.
        let end = self.len + text.len();
        let place = self.bytes[..1023].get_mut(self.len..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Writes what is held as XML, in the C library's form for a whole process. -1 with EINVAL for other
/// options than 0.
///
/// # Safety
/// `file` is an open file of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, file: *mut libc::FILE) -> c_int {
    if options != 0 {
        c::fail(libc::EINVAL);
        return -1;
    }
    let [held, live, cached] = bytes(&stats());
    let mut text = Text { bytes: [0; 1024], len: 0 };
    let rest = held.saturating_sub(live);
    let written = write!(
        text,
        "<malloc version=\"1\">\n<total type=\"rest\" count=\"0\" size=\"{rest}\"/>\n\
         <system type=\"current\" size=\"{held}\"/>\n\
         <aspace type=\"total\" size=\"{held}\"/>\n<cached size=\"{cached}\"/>\n</malloc>\n"
    );
    let text = text.bytes.as_ptr().cast::<c_char>();
    // SAFETY: a text that ends with a zero, and the caller's file.
    if written.is_ok() && unsafe { libc::fputs(text, file) } >= 0 { 0 } else { -1 }
}

/// Writes what is held to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    let [held, live, _] = bytes(&stats());
    let mut text = Text { bytes: [0; 1024], len: 0 };
    let written = write!(text, "system bytes     = {held:>10}\nin use bytes     = {live:>10}\n");
    if written.is_ok() {
        // SAFETY: as many bytes as were written.
        unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.len) };
    }
}
