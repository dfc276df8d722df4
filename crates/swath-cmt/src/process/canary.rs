//! The canary behind each block of the hardened form: the last word of its bytes, a keyed product of
//! the word's address, which is not the user's. A write that goes on beyond the block overwrites
//! it, and the block's free finds that.

use core::ptr::NonNull;

/// Bytes of a canary.
pub(crate) const CANARY_BYTES: usize = size_of::<u64>();

/// The key of a process's canaries.
#[derive(Clone, Copy)]
pub(crate) struct Canary {
    key: u64,
}

impl Canary {
    /// Makes a key of the random bytes that the kernel gives every program.
    pub(crate) fn new() -> Self {
        // SAFETY: only asks; the bytes are there as long as the process.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
        let random = NonNull::new(core::ptr::with_exposed_provenance_mut::<u64>(random));
        // SAFETY: 16 bytes at any alignment.
        let key = random.map_or(0, |random| unsafe { random.read_unaligned() });
        Self { key }
    }

    /// The word behind the bytes that a user has of the `len_bytes` at `block`, and its canary.
    fn place(self, block: NonNull<u8>, len_bytes: usize) -> (*mut u64, u64) {
        let place = block.as_ptr().wrapping_add(len_bytes - CANARY_BYTES).cast::<u64>();
        (place, (place.addr() as u64 ^ self.key).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// Writes the canary of a block.
    ///
    /// # Safety
    /// `block` is a block of `len_bytes` that nothing else uses.
    pub(crate) unsafe fn write(self, block: NonNull<u8>, len_bytes: usize) {
        let (place, canary) = self.place(block, len_bytes);
        // SAFETY: in the block; slots and segments are multiples of 16 bytes.
        unsafe { place.write(canary) };
    }

    /// Returns true if the canary of a block is as it was written.
    ///
    /// # Safety
    /// `block` is a block in use, of `len_bytes`.
    pub(crate) unsafe fn is_intact(self, block: NonNull<u8>, len_bytes: usize) -> bool {
        let (place, canary) = self.place(block, len_bytes);
        // SAFETY: in the block, which had its canary written when it was allocated.
        unsafe { place.read() == canary }
    }
}
