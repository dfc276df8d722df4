//! Frames that move through a pmap: the migration daemon's
//! [`Owners`], for memory that is reached through the
//! mappings of [`Spaces`].
//!
//! The pmap knows where a frame is mapped. Who holds it, and whether it may move
//! at all, the kernel's own table of frames says ([`Holders`]): kernel memory
//! stays, a frame with I/O under way is pinned, a page of the page cache is
//! movable though nothing maps it.
//!
//! **What moves as one** is the larger of two: what the holder has as one block,
//! and the largest page that maps the frame. So a superpage moves as a
//! superpage, while there is a target of its order; all that lies in it must be
//! free to move. Otherwise it is demoted, one size at a time and without loss:
//! where there is no table or are no PV entries for that, it stays, and the block
//! with it. Then the holder is asked to break up its block.
//!
//! What it costs stands at [`relocation`](crate::pmap::relocation); beside that, the
//! holder is asked once for each of its blocks within a superpage, before the
//! target is taken and again before the move.

use core::ops::DerefMut;

use swath_arch::{Order, Pfn, PhysMemory};

use crate::migrate::daemon::{Owners, Stuck};
use crate::pmap::mappings::{Pmap, Spaces};

/// The use of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Held {
    /// Nothing: it is free.
    Free,
    /// Kernel memory, reached by its physical address.
    Unmovable,
    /// It is movable, but must stay for now: I/O is under way, or it is wired.
    Pinned,
    /// Memory that only mappings and the holder lead to, as part of a block that
    /// the holder has as one.
    Movable {
        /// The block's first frame, a multiple of its size.
        start: Pfn,
        /// The block's order: 0 for a single frame.
        order: Order,
    },
}

/// A kernel's table of frames.
pub trait Holders {
    /// Returns the use of the frame now.
    fn held(&self, frame: Pfn) -> Held;

    /// Records that the frames from `from` on are now those from `to` on, with their content
    /// and mappings; the old ones are about to be given back. The holders' own
    /// notes follow: the page cache's index, a process's list.
    fn moved(&mut self, from: Pfn, to: Pfn, order: Order);

    /// Breaks a block up into smaller ones, each of which can move alone.
    /// Returns true if that could be done.
    fn split(&mut self, start: Pfn, order: Order) -> bool {
        let _ = (start, order);
        false
    }
}

/// Moves blocks whose holders `H` know of them, with their mappings in the
/// spaces `S`, through memory `C`. It lasts as long as a step of the daemon, in
/// which the pmap is its own.
#[derive(Debug)]
pub struct Relocator<'a, W, S, H, C: ?Sized> {
    /// The mappings.
    pub pmap: &'a mut Pmap<W>,
    /// The spaces that they are in, with their TLB maintenance.
    pub spaces: &'a mut S,
    /// The holders of the frames.
    pub holders: &'a mut H,
    /// The memory through which content is copied.
    pub memory: &'a C,
}

/// Returns the holder's block around the frame; `None` if the frame is free.
fn movable<H: Holders>(holders: &H, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
    match holders.held(frame) {
        Held::Free => Ok(None),
        Held::Unmovable => Err(Stuck::Unmovable),
        Held::Pinned => Err(Stuck::Pinned),
        Held::Movable { start, order } => {
            let is_around =
                start.is_aligned(order.k()) && start <= frame && frame - start < order.frames();
            if is_around { Ok(Some((start, order))) } else { Err(Stuck::Failed) }
        }
    }
}

impl<W, S, H, C> Owners for Relocator<'_, W, S, H, C>
where
    W: DerefMut<Target = [u64]>,
    S: Spaces,
    H: Holders,
    C: PhysMemory + ?Sized,
{
    fn block(&self, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
        let Some((start, order)) = movable(self.holders, frame)? else { return Ok(None) };
        let mapped = self.pmap.reverse().largest(frame).filter(|&mapped| mapped > order);
        let Some(mapped) = mapped else { return Ok(Some((start, order))) };
        let head = frame.raw() >> mapped.k() << mapped.k();
        let mut next = head;
        while next < head + mapped.frames() {
            match movable(self.holders, Pfn::new(next))? {
                Some((start, order)) if start.raw() == next => {
                    next = start.raw() + order.frames();
                }
                // Freed while a mapping leads there, or two blocks that overlap.
                _ => return Err(Stuck::Failed),
            }
        }
        Ok(Some((Pfn::new(head), mapped)))
    }

    fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> Result<bool, Stuck> {
        // A target was taken since the block was looked at.
        if self.block(from)? != Some((from, order)) {
            return Ok(false);
        }
        self.pmap
            .move_block(self.spaces, self.memory, from, to, order)
            .map_err(|_| Stuck::Failed)?;
        self.holders.moved(from, to, order);
        Ok(true)
    }

    fn split(&mut self, start: Pfn, order: Order) -> Result<bool, Stuck> {
        let demoted = self.pmap.demote_block(self.spaces, start, order);
        if !demoted.map_err(|_| Stuck::Failed)? {
            return Err(Stuck::Failed);
        }
        match self.holders.held(start) {
            Held::Movable { start: head, order: held } if held >= order => {
                Ok(head == start && self.holders.split(start, held))
            }
            _ => Ok(true),
        }
    }
}
