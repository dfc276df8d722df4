//! The canary behind each block of the hardened form: the last word of its place, which says how many bytes the
//! user has and what made the block, keyed with the process's key and the word's address. Between the user's
//! bytes and it lie bytes that the user has not. A write that goes on beyond the block overwrites these, and the
//! block's free finds that.
//!
//! ```text
//!             usable bytes of the pool's
//!  ├──────────────────────────────────────────────┤
//!  │ the user's bytes │ filled, 64 at most │ … │ canary │ the next slot
//! ```
//!
//! A slot's canary also stands before the slot behind it: a write that begins before a block overwrites that. So the
//! last word of a slot is a canary whenever the slot behind it is in use, be it in use itself or not.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Bytes of a canary.
pub(crate) const CANARY_BYTES: usize = size_of::<u64>();

/// The lower bits of a canary that says nothing: they name no origin.
const NOTHING: u32 = 3;

/// The most bytes behind the user's that are filled.
const FILLED_MAX: usize = 64;

/// The function that made a block, which its counterpart must free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Origin {
    /// `malloc` and its kin.
    Malloc,
    /// C++'s `operator new`.
    New,
    /// C++'s `operator new[]`.
    NewArray,
}

/// What a canary says of its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    /// Bytes of the block that the user has.
    pub(crate) user_bytes: usize,
    pub(crate) origin: Origin,
    /// True if it was freed, and waits in a quarantine.
    pub(crate) waits: bool,
}

/// The key of a process's canaries.
#[derive(Clone, Copy)]
pub(crate) struct Canary {
    key: u64,
    /// Eight of the bytes that fill, made of the key.
    fill: u64,
}

impl Canary {
    /// Makes a key of the random bytes that the kernel gives every program.
    pub(crate) fn new() -> Self {
        // SAFETY: only asks; the bytes are there as long as the process.
        let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
        let random = NonNull::new(core::ptr::with_exposed_provenance_mut::<u64>(random));
        // SAFETY: 16 bytes at any alignment.
        let key = random.map_or(0, |random| unsafe { random.read_unaligned() });
        Self { key, fill: u64::from((key >> 40) as u8 | 1) * 0x0101_0101_0101_0101 }
    }

    /// The canary with these lower bits at an address.
    fn word(self, address: usize, low: u32) -> u64 {
        let mixed = address as u64 ^ self.key ^ u64::from(low).rotate_left(29);
        let high = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32 << 32;
        high | u64::from(low ^ self.key as u32)
    }

    /// The last word of a block's place.
    ///
    /// # Safety
    /// `block` begins `len_bytes` of the pool's memory, slot or segment.
    unsafe fn place<'a>(block: NonNull<u8>, len_bytes: usize) -> &'a AtomicU64 {
        // SAFETY: in the block; slots and segments are multiples of 16 bytes, and the arena stays.
        unsafe { block.byte_add(len_bytes - CANARY_BYTES).cast().as_ref() }
    }

    /// Writes the canary of a block, and fills what lies before it.
    ///
    /// # Safety
    /// `block` is a block of `len_bytes` that nothing else uses, of which the user has at most
    /// `len_bytes - CANARY_BYTES`.
    #[inline]
    pub(crate) unsafe fn write(self, block: NonNull<u8>, len_bytes: usize, kept: Kept) {
        // SAFETY: as the caller says.
        let (slack, first, last) = unsafe { Self::behind(block, len_bytes, kept.user_bytes) };
        // SAFETY: what is between the user's bytes and the canary; the user's in the last word stay.
        unsafe {
            match slack {
                0..8 => {
                    let theirs = Self::theirs(slack);
                    last.write(last.read() & theirs | self.fill & !theirs);
                }
                8..=16 => {
                    first.write_unaligned(self.fill);
                    last.write(self.fill);
                }
                17.. => self.fill_long(first.cast(), slack),
            }
        }
        // SAFETY: as the caller says.
        unsafe { self.keep(block, len_bytes, kept) };
    }

    /// Writes the canary alone: what is kept changes, not where the user's bytes end.
    ///
    /// # Safety
    /// As for [`write`](Self::write).
    #[inline]
    pub(crate) unsafe fn keep(self, block: NonNull<u8>, len_bytes: usize, kept: Kept) {
        // SAFETY: as the caller says.
        let place = unsafe { Self::place(block, len_bytes) };
        let slack = len_bytes - CANARY_BYTES - kept.user_bytes;
        let low = (slack as u32) << 3 | u32::from(kept.waits) << 2 | kept.origin as u32;
        place.store(self.word(core::ptr::from_ref(place).addr(), low), Relaxed);
    }

    /// Writes a canary that says nothing where none stands behind a slot: its last user went beyond it, or it has not
    /// been used, or a fork came while a thread that the child has not was about to use it. If it is in use, its free
    /// finds that its own canary is lost.
    ///
    /// # Safety
    /// `slot` begins a slot of `len_bytes`.
    pub(crate) unsafe fn see_to(self, slot: NonNull<u8>, len_bytes: usize) {
        // SAFETY: as the caller says.
        let place = unsafe { Self::place(slot, len_bytes) };
        if !self.stands(place) {
            place.store(self.word(core::ptr::from_ref(place).addr(), NOTHING), Relaxed);
        }
    }

    /// Returns true if a canary stands there, whatever it says.
    fn stands(self, place: &AtomicU64) -> bool {
        let word = place.load(Relaxed);
        self.word(core::ptr::from_ref(place).addr(), word as u32 ^ self.key as u32) == word
    }

    /// Returns true if a canary stands behind a slot, whatever it says.
    ///
    /// # Safety
    /// `slot` begins a slot of `len_bytes`.
    pub(crate) unsafe fn is_behind(self, slot: NonNull<u8>, len_bytes: usize) -> bool {
        // SAFETY: as the caller says.
        self.stands(unsafe { Self::place(slot, len_bytes) })
    }

    /// Returns what the canary of a block says; `None` if it was overwritten.
    ///
    /// # Safety
    /// `block` begins a slot or a segment in use, of `len_bytes`.
    pub(crate) unsafe fn read(self, block: NonNull<u8>, len_bytes: usize) -> Option<Kept> {
        // SAFETY: as the caller says.
        let place = unsafe { Self::place(block, len_bytes) };
        let low = place.load(Relaxed) as u32 ^ self.key as u32;
        let user_bytes = (len_bytes - CANARY_BYTES).checked_sub(low as usize >> 3)?;
        let origin = match low & 3 {
            0 => Origin::Malloc,
            1 => Origin::New,
            2 => Origin::NewArray,
            _ => return None,
        };
        self.stands(place).then_some(Kept { user_bytes, origin, waits: low & 4 != 0 })
    }

    /// Returns true if the bytes behind the user's are as they were filled.
    ///
    /// # Safety
    /// As for [`write`](Self::write), with what [`read`](Self::read) said.
    #[inline]
    pub(crate) unsafe fn is_filled(
        self,
        block: NonNull<u8>,
        len_bytes: usize,
        user_bytes: usize,
    ) -> bool {
        // SAFETY: as the caller says.
        let (slack, first, last) = unsafe { Self::behind(block, len_bytes, user_bytes) };
        // SAFETY: in the block, whose memory is the kernel's: there are no bytes that were never written.
        unsafe {
            match slack {
                0..8 => (last.read() ^ self.fill) & !Self::theirs(slack) == 0,
                8..=16 => first.read_unaligned() ^ self.fill | last.read() ^ self.fill == 0,
                17.. => self.is_long_filled(first.cast(), slack),
            }
        }
    }

    /// How many bytes lie between the user's and the canary, the word behind the user's, which may lie at any address, and
    /// the last word before the canary.
    ///
    /// # Safety
    /// `block` begins `len_bytes` of the pool's memory, of which the user has at most `len_bytes - CANARY_BYTES`.
    #[inline]
    unsafe fn behind(
        block: NonNull<u8>,
        len_bytes: usize,
        user_bytes: usize,
    ) -> (usize, NonNull<u64>, NonNull<u64>) {
        let slack = len_bytes - CANARY_BYTES - user_bytes;
        // SAFETY: in the block, as the caller says; slots and segments are 16 bytes long or more.
        let last = unsafe { block.byte_add(len_bytes - 2 * CANARY_BYTES) };
        // SAFETY: as above.
        let first = unsafe { block.byte_add(user_bytes) };
        (slack, first.cast(), last.cast())
    }

    /// The bits of the last word before the canary that are the user's, where less than a word is not.
    #[inline]
    const fn theirs(slack: usize) -> u64 {
        (!0_u64 >> (8 * slack)).to_le()
    }

    /// # Safety
    /// So many bytes from `from` on lie behind a user's bytes and before the canary.
    #[cold]
    #[inline(never)]
    unsafe fn fill_long(self, from: NonNull<u8>, slack: usize) {
        // SAFETY: as the caller says.
        unsafe { from.write_bytes(self.fill as u8, slack.min(FILLED_MAX)) };
    }

    /// # Safety
    /// As for [`fill_long`](Self::fill_long).
    #[cold]
    #[inline(never)]
    unsafe fn is_long_filled(self, from: NonNull<u8>, slack: usize) -> bool {
        // SAFETY: as the caller says; written when the block was allocated.
        let filled = unsafe { core::slice::from_raw_parts(from.as_ptr(), slack.min(FILLED_MAX)) };
        filled.iter().all(|&byte| byte == self.fill as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_tells_and_no_flipped_bit_stays_unseen() {
        let canary = Canary::new();
        let mut words = [0_u64; 20];
        let block = NonNull::from(&mut words).cast::<u8>();
        let origins = [Origin::Malloc, Origin::New, Origin::NewArray];
        for len_bytes in (16..=160).step_by(16) {
            for user_bytes in 0..=len_bytes - CANARY_BYTES {
                let origin = origins[user_bytes % 3];
                let kept = Kept { user_bytes, origin, waits: user_bytes % 2 == 1 };
                // SAFETY: in the words, which nothing else uses meanwhile.
                unsafe {
                    canary.write(block, len_bytes, kept);
                    assert_eq!(canary.read(block, len_bytes), Some(kept));
                    assert!(canary.is_filled(block, len_bytes, user_bytes));
                    // What a write beyond the user's bytes reaches.
                    for at in user_bytes..len_bytes {
                        let byte = block.byte_add(at);
                        for bit in 0..8 {
                            byte.write(byte.read() ^ 1 << bit);
                            let seen = canary.read(block, len_bytes) == Some(kept)
                                && canary.is_filled(block, len_bytes, user_bytes);
                            let is_filled = at < user_bytes + FILLED_MAX;
                            let is_word = at >= len_bytes - CANARY_BYTES;
                            assert_eq!(seen, !is_filled && !is_word, "{len_bytes}, {at}, {bit}");
                            byte.write(byte.read() ^ 1 << bit);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_canary_belongs_to_its_address() {
        let canary = Canary::new();
        let mut words = [0_u64; 4];
        let block = NonNull::from(&mut words).cast::<u8>();
        // SAFETY: in the words.
        unsafe {
            assert!(!canary.is_behind(block, 16));
            canary.see_to(block, 16);
            assert!(canary.is_behind(block, 16) && canary.read(block, 16).is_none());
            block.cast::<u64>().add(3).write(block.cast::<u64>().add(1).read());
            assert!(!canary.is_behind(block.byte_add(16), 16));
            // One that says something stays.
            let kept = Kept { user_bytes: 5, origin: Origin::New, waits: false };
            canary.write(block, 16, kept);
            canary.see_to(block, 16);
            assert_eq!(canary.read(block, 16), Some(kept));
        }
    }
}
