//! Blocks of the C library's own heap: a program may have some from before this library was loaded, or
//! from `__libc_malloc`.
//!
//! They are known by where they lie and by the word before them, in which that heap keeps a block's size
//! and, in its lowest bits, of what kind the block is. A pointer of which that cannot be said is none of
//! its blocks.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use swath_cmt::Foreign;

/// The C library's heap.
pub(crate) static C_LIBRARY: Foreign = Foreign { free, resize, usable_size };

/// Bits of a block's size: it is a mapping of its own; it is of another thread's arena.
const IS_MAPPED: usize = 2;
const IS_OTHER_ARENA: usize = 4;
const KINDS: usize = 7;
/// Bytes of the two words before a block.
const HEADER_BYTES: usize = 16;
/// What another arena's heap is aligned to.
const HEAP_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;

unsafe extern "C" {
    fn __libc_free(block: *mut c_void);
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
}

unsafe fn free(block: NonNull<u8>) -> bool {
    let known = size_of_block(block).is_some();
    if known {
        // SAFETY: a block of that heap, as the caller frees it.
        unsafe { __libc_free(block.as_ptr().cast()) };
    }
    known
}

unsafe fn resize(block: NonNull<u8>, size: usize) -> Option<*mut u8> {
    size_of_block(block)?;
    // SAFETY: a block of that heap, and the caller uses only what is returned.
    Some(unsafe { __libc_realloc(block.as_ptr().cast(), size) }.cast())
}

fn usable_size(block: NonNull<u8>) -> usize {
    size_of_block(block).unwrap_or(0)
}

/// Returns the bytes of a block of the C library's heap that may be used, if it is one.
fn size_of_block(block: NonNull<u8>) -> Option<usize> {
    let address = block.addr().get();
    let (mapping, is_heap) = mapping_of(address)?;
    if !address.is_multiple_of(16) || address - mapping.start < HEADER_BYTES {
        return None;
    }
    // SAFETY: within a mapping that can be read.
    let [before, word] = unsafe { block.as_ptr().sub(HEADER_BYTES).cast::<[usize; 2]>().read() };
    let (size, kind) = (word & !KINDS, word & KINDS);
    let is_block = match kind & (IS_MAPPED | IS_OTHER_ARENA) {
        0 => is_heap,
        IS_MAPPED => {
            let start = (address - HEADER_BYTES).checked_sub(before)?;
            start.is_multiple_of(PAGE_BYTES) && before.checked_add(size)?.is_multiple_of(PAGE_BYTES)
        }
        IS_OTHER_ARENA => mapping.start <= address & !(HEAP_BYTES - 1),
        _ => false,
    };
    let inside = size >= 2 * HEADER_BYTES && size <= mapping.end - (address - HEADER_BYTES);
    // A mapping's block has no neighbour whose first word it may use.
    let overhead = if kind & IS_MAPPED == 0 { HEADER_BYTES / 2 } else { HEADER_BYTES };
    (is_block && inside).then(|| size - overhead)
}

/// Returns the mapping of memory without a file that an address lies in, if it can be read and written,
/// and true beside it if it is the process's heap.
fn mapping_of(address: usize) -> Option<(core::ops::Range<usize>, bool)> {
    // SAFETY: a path that ends with a zero; closed below.
    let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    let found = find(file, address);
    // SAFETY: opened above.
    unsafe { libc::close(file) };
    found
}

fn find(file: c_int, address: usize) -> Option<(core::ops::Range<usize>, bool)> {
    let (mut bytes, mut held) = ([0_u8; 4096], 0);
    loop {
        let room = &mut bytes[held..];
        // SAFETY: the buffer has so much room.
        let read = unsafe { libc::read(file, room.as_mut_ptr().cast(), room.len()) };
        held += usize::try_from(read).ok().filter(|&read| read > 0)?;
        let mut start = 0;
        while let Some(len) = bytes[start..held].iter().position(|&byte| byte == b'\n') {
            if let Some((range, is_heap)) = mapping_in(&bytes[start..start + len])
                && range.contains(&address)
            {
                return Some((range, is_heap));
            }
            start += len + 1;
        }
        bytes.copy_within(start..held, 0);
        held -= start;
        // A longer line is a file's.
        if held == bytes.len() {
            held = 0;
        }
    }
}

/// Returns the addresses of a line such as `00400000-00452000 rw-p 00000000 00:00 0  [heap]`, and true for
/// that name; `None` of a file's, or of what cannot be written.
fn mapping_in(line: &[u8]) -> Option<(core::ops::Range<usize>, bool)> {
    let line = core::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let access = fields.next()?;
    let name = fields.nth(3).unwrap_or("");
    let number = |text| usize::from_str_radix(text, 16).ok();
    let is_memory = access.starts_with("rw") && (name.is_empty() || name == "[heap]");
    is_memory.then_some((number(start)?..number(end)?, name == "[heap]"))
}
