//! A bit for each frame that a user owns, kept beside an allocator: what it hands out must be
//! aligned, be memory, and belong to nobody.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contender::{Cpu, Shared};

/// An allocator whose blocks are looked at.
pub(crate) struct Owned<'a, S> {
    shared: &'a S,
    frames: u64,
    bits: Vec<AtomicU64>,
    fault: Mutex<Option<String>>,
}

impl<'a, S: Shared> Owned<'a, S> {
    /// Looks at `shared`, all of whose frames, from 0 to `frames`, are free.
    pub(crate) fn new(shared: &'a S, frames: u64) -> Self {
        let bits = (0..frames.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { shared, frames, bits, fault: Mutex::new(None) }
    }

    /// The first thing that was wrong, if there was one.
    pub(crate) fn fault(&self) -> Result<(), String> {
        let fault = self.fault.lock().unwrap_or_else(|error| error.into_inner());
        fault.clone().map_or(Ok(()), Err)
    }

    fn note(&self, what: String) {
        self.fault.lock().unwrap_or_else(|error| error.into_inner()).get_or_insert(what);
    }

    /// Sets the bits of a block, or clears them; false if one was so before.
    fn change(&self, frame: u64, order: u8, owned: bool) -> bool {
        let count = 1_u64 << order;
        let mask = if count >= 64 { u64::MAX } else { ((1 << count) - 1) << (frame % 64) };
        let words = &self.bits[(frame / 64) as usize..][..count.div_ceil(64) as usize];
        // No `all`, which would leave out the rest after the first that is wrong.
        words.iter().fold(true, |right, word| {
            if owned {
                right & (word.fetch_or(mask, Ordering::Relaxed) & mask == 0)
            } else {
                right & (word.fetch_and(!mask, Ordering::Relaxed) & mask == mask)
            }
        })
    }
}

impl<S: Shared> Shared for Owned<'_, S> {
    type Cpu<'a>
        = OwnedCpu<'a, S>
    where
        Self: 'a;

    fn on(&self, cpu: usize, order: u8) -> Result<Self::Cpu<'_>, String> {
        Ok(OwnedCpu { owned: self, cpu: self.shared.on(cpu, order)?, order })
    }

    fn check(&self, free: u64) -> Result<(), String> {
        self.fault()?;
        let owned: u64 =
            self.bits.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum();
        if owned + free != self.frames {
            return Err(format!("{owned} frames are owned where {free} are to be free"));
        }
        self.shared.check(free)
    }
}

/// An allocator as one CPU uses it, whose blocks are looked at.
pub(crate) struct OwnedCpu<'a, S: Shared + 'a> {
    owned: &'a Owned<'a, S>,
    cpu: S::Cpu<'a>,
    order: u8,
}

impl<S: Shared> Cpu for OwnedCpu<'_, S> {
    fn get(&mut self) -> Option<u64> {
        let (owned, order) = (self.owned, self.order);
        let frame = self.cpu.get()?;
        if frame % (1 << order) != 0 || frame + (1 << order) > owned.frames {
            owned.note(format!("frame {frame} is no block of order {order}"));
            return None;
        }
        if !owned.change(frame, order, true) {
            owned.note(format!("the block of order {order} at {frame} went out twice"));
        }
        Some(frame)
    }

    fn put(&mut self, frame: u64) -> bool {
        if !self.owned.change(frame, self.order, false) {
            self.owned.note(format!("the block of order {} at {frame} is not owned", self.order));
        }
        self.cpu.put(frame)
    }
}
