//! Requests that no open word serves as they come: a bank is chosen, and a block is taken from it
//! or one of its words is opened.

use core::ops::DerefMut;

use swath_arch::Pfn;

use crate::hardening::Hardening;
use crate::zone::bank::buddy::BankBuddy;
use crate::zone::bank::placement::{Pick, Placement};

impl<W: DerefMut<Target = [u64]>, P: Placement, H: Hardening> BankBuddy<W, P, H> {
    /// Allocates what an open word does not serve. The zone may stop at the end; once it has, no word is
    /// open and no bank is chosen.
    #[inline(never)]
    pub(crate) fn allocate_any(&mut self, order: u32, movable: bool) -> Option<Pfn> {
        if order == 0 { self.allocate_single(movable) } else { self.allocate_block(order, movable) }
    }

    /// Allocates a block of more than one frame.
    #[inline(never)]
    fn allocate_block(&mut self, order: u32, movable: bool) -> Option<Pfn> {
        if order > self.blocks.top {
            return None;
        }
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let at_hand = self.rule.at_hand(b, s, order, movable);
        if P::SEARCHES_APART {
            return match at_hand {
                Some(bank) => self.take_block(bank, order, Pick::Open),
                None => self.search_block(order, movable),
            };
        }
        let (bank, from) = match at_hand {
            Some(bank) => (bank, Pick::Open),
            None => self.search(order, movable)?,
        };
        self.take_block(bank, order, from)
    }

    /// Allocates a block of more than one frame where no bank is at hand: apart, so that who has one
    /// knows it to be a bank.
    #[inline(never)]
    fn search_block(&mut self, order: u32, movable: bool) -> Option<Pfn> {
        let (bank, from) = self.search(order, movable)?;
        self.take_block(bank, order, from)
    }

    /// Allocates a block of more than one frame from a bank that serves it.
    #[inline(always)]
    fn take_block(&mut self, bank: usize, order: u32, from: Pick) -> Option<Pfn> {
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let Some((frame, taken)) = b.allocate(s, bank, order, from == Pick::Largest) else {
            return self.contradicted();
        };
        if self.rule.allocated(b, s, &taken) {
            self.settle();
        }
        Some(frame)
    }

    /// The placement's choice where no bank is at hand; none if a word was outvoted, at which the
    /// zone has stopped.
    #[inline(always)]
    fn search(&mut self, order: u32, movable: bool) -> Option<(usize, Pick)> {
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let chosen = self.rule.choose(b, s, order, movable);
        if self.settle() { chosen } else { None }
    }

    /// The end of a call that has met words which contradict each other.
    #[cold]
    fn contradicted<T>(&mut self) -> Option<T> {
        self.stop();
        None
    }

    /// Allocates a single frame that is its word's last, or opens a word. The zone may stop on the way.
    #[inline(always)]
    fn allocate_single(&mut self, movable: bool) -> Option<Pfn> {
        let slot = usize::from(movable);
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let open = b.open_bank(slot).filter(|&bank| self.rule.keeps(bank, movable));
        if P::SEARCHES_APART {
            if let Some(bank) = open {
                return self.take_last(bank, slot);
            }
            return match self.rule.at_hand(b, s, 0, movable) {
                Some(bank) => self.take_single(bank, Pick::Open, slot),
                None => self.search_single(movable),
            };
        }
        let (bank, from) = match open.or_else(|| self.rule.at_hand(b, s, 0, movable)) {
            Some(bank) => (bank, Pick::Open),
            None => self.search(0, movable)?,
        };
        self.take_single(bank, from, slot)
    }

    /// Allocates a single frame where no bank is at hand, apart as
    /// [`search_block`](Self::search_block) is.
    #[inline(never)]
    fn search_single(&mut self, movable: bool) -> Option<Pfn> {
        let (bank, from) = self.search(0, movable)?;
        self.take_single(bank, from, usize::from(movable))
    }

    /// Allocates a frame of the open word of this bank.
    #[inline(always)]
    fn take_last(&mut self, bank: usize, slot: usize) -> Option<Pfn> {
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let (frame, falls) = b.allocate_last(s, slot)?;
        if falls {
            self.fell(bank);
        }
        Some(frame)
    }

    /// Allocates a single frame of a bank that serves it: from the word that is open there, or from one
    /// that is opened.
    #[inline(always)]
    fn take_single(&mut self, bank: usize, from: Pick, slot: usize) -> Option<Pfn> {
        if from != Pick::Open {
            let frame = self.allocate_from(bank, 0, from);
            self.settle();
            return frame;
        }
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        if b.open_bank(slot) == Some(bank) {
            return self.take_last(bank, slot);
        }
        if b.open_bank(slot).is_some()
            && let Some((bank, frames)) = b.close(s, slot)
        {
            self.rule.freed(b, s, bank, |s| b.known_record(s, bank), frames);
            if !self.settle() {
                return None;
            }
        }
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let Some((frame, taken)) = b.allocate_opening(s, bank, slot) else {
            return self.contradicted();
        };
        if let Some(taken) = taken
            && self.rule.allocated(b, s, &taken)
        {
            self.settle();
        }
        Some(frame)
    }

    /// Allocates a block from a bank that was chosen, and opens no word.
    #[inline(never)]
    pub(crate) fn allocate_from(&mut self, bank: usize, order: u32, from: Pick) -> Option<Pfn> {
        let (b, s) = (&mut self.blocks, H::write(&mut self.storage));
        let Some(record) = b.record(s, bank) else { return self.contradicted() };
        if b.trees(s, bank, record) == 0 {
            // A single frame, and all that the bank has is open.
            let slot = usize::from(b.open_bank(1) == Some(bank));
            let Some((frame, falls)) = b.allocate_last(s, slot) else {
                return self.contradicted();
            };
            if falls {
                self.fell(bank);
            }
            return Some(frame);
        }
        let Some((frame, taken)) = b.allocate(s, bank, order, from == Pick::Largest) else {
            return self.contradicted();
        };
        self.rule.allocated(b, s, &taken);
        Some(frame)
    }

    /// A bank has lost its last single frame, which was an open word's.
    #[inline(never)]
    fn fell(&mut self, bank: usize) {
        let s = H::write(&mut self.storage);
        let Some(taken) = self.blocks.fallen(s, bank) else {
            self.stop();
            return;
        };
        if self.rule.allocated(&self.blocks, s, &taken) {
            self.settle();
        }
    }
}
