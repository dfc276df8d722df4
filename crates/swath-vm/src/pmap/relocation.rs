//! Moving frames: the content of a block and every mapping of it, in all
//! spaces, to another block.
//!
//! Other processors run on while a block moves, so its mappings are broken
//! first and made again last:
//!
//! 1. **Break.** Each mapping is made invalid where it stands, keeping what it
//!    said, and the TLBs forget it. From here on nobody reads or writes the
//!    block through a mapping; who faults waits for the pmap.
//! 2. **Copy.**
//! 3. **Make.** Each mapping is made valid again with its new frame; every other
//!    bit, also one that the hardware has set, stays. What was invalid is in no
//!    TLB, so none has to be told.
//! 4. The mappings in PV entries and what is remembered of the frames go over.
//!    Nothing can fail any more.
//!
//! A failure up to step 2 makes the old mappings valid again. In step 3 some
//! already lead to the new frames, and may have been written through: these are
//! broken once more and the content is copied back before. So a failure leaves
//! all as it was, and no step needs a table or other memory. PV entries are needed only where
//! less than 16 frames move, for pages that leave the entry that they shared; whether they are
//! there is seen before the first step, and they are if there are as many as mappings.
//!
//! A superpage moves as one entry (or 16 that are joined), to a block of its
//! own order. The table kept for its demotion says the old frames and so is
//! stale, as after any change of the whole ([`superpage`](crate::table::superpage)).
//!
//! # What it costs
//! For 2^k frames with m mappings, whose entries lie d levels deep (l for base
//! pages) and are e each (1, or 16 if joined):
//!
//! | | reads of memory | writes of memory |
//! |---|---|---|
//! | content | 512·2^k | 512·2^k |
//! | mappings | 2·m·(d + e - 1) | 2·m·e |
//!
//! and m invalidations. In the reverse map, with c sizes of pages, G groups of 16 frames
//! and of the larger sizes up to k among the frames, and s entries in all their lists:
//! O(c·(G + s)) words are read, and G heads moved; for less than 16 frames it is
//! O(c·s + s²), and the entries of the m mappings written. A base page that is mapped once so costs 514 writes; 512
//! of them moved as a superpage cost 512.004 each.

use core::ops::DerefMut;

use swath_arch::{
    BASE_PAGE_BYTES, BusError, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Vpn,
};
use swath_frame::FrameAllocator;

use crate::pmap::entries::{ReverseMap, Site, SpaceId};
use crate::pmap::error::PmapError;
use crate::pmap::mappings::{DemotionCause, Pmap, Spaces};
use crate::table::encode::{self, Entry, Leaf};
use crate::table::flush::Flush;
use crate::table::space::AddressSpace;

/// Reasons why a block does not move. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MoveError {
    /// A block does not begin at a multiple of its size.
    #[error("frame {frame} begins no block of order {order}")]
    Misaligned {
        /// Its first frame.
        frame: Pfn,
        /// Its order.
        order: Order,
    },
    /// The reverse map does not know the frame.
    #[error("frame {frame} is not in the reverse map")]
    UnknownFrame {
        /// The first such frame of the two blocks.
        frame: Pfn,
    },
    /// A frame of the target is mapped.
    #[error("frame {frame} of the target is mapped")]
    TargetMapped {
        /// The first such frame.
        frame: Pfn,
    },
    /// A superpage maps frames around the block, too.
    #[error("a superpage of order {order} maps frames around the block")]
    Superpage {
        /// The superpage's order.
        order: Order,
    },
    /// Pages that shared PV entries would not at the target, and too few entries are free.
    #[error("no PV entry is free")]
    OutOfEntries,
    /// A descriptor of the space's format cannot say a frame of the target.
    #[error("space {} cannot map the target", space.0)]
    OutOfReach {
        /// The space.
        space: SpaceId,
    },
    /// There is no space of this number.
    #[error("there is no space {}", space.0)]
    NoSpace {
        /// The number.
        space: SpaceId,
    },
    /// A PV entry whose page does not lead to the frames: the space was changed
    /// behind the pmap's back.
    #[error("page {} of space {} does not lead there", site.page, site.space.0)]
    NotMapped {
        /// The PV entry.
        site: Site,
    },
    /// Memory did not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Entries of a mapping: its first, and how many.
#[derive(Clone, Copy)]
struct MappingEntries {
    level: usize,
    at: PhysAddr,
    count: u64,
}

/// The word that one entry is changed to, if it is.
type Change<'c> = &'c dyn Fn(&MappingEntries, u64, u64) -> Option<u64>;

/// Returns true if the word is of a page of this order and these frames.
fn leads_to(format: Format, place: &MappingEntries, word: u64, order: Order, frame: Pfn) -> bool {
    let entry = encode::decode(format, place.level, word);
    matches!(entry, Entry::Leaf(leaf) if (leaf.order, leaf.frame) == (order, frame))
}

/// Returns the word of the i-th entry of a mapping, in use, leading to `to` instead.
fn retarget(format: Format, place: &MappingEntries, i: u64, word: u64, to: Pfn) -> u64 {
    let Entry::Leaf(leaf) = encode::decode(format, place.level, word) else { return word };
    let entry_order = Order::known((leaf.order.frames() / place.count).ilog2() as u8);
    let offset = i * encode::copy_step(format, entry_order);
    let said = |frame| encode::leaf(format, place.level, Leaf { frame, ..leaf }) + offset;
    // The two differ in the address alone.
    word ^ said(leaf.frame) ^ said(to)
}

impl<M: PhysMemory, A: FrameAllocator, T: FrameAllocator> AddressSpace<M, A, T> {
    /// Returns the place of a mapping of this order, and the first entry's word.
    fn mapping_at(&self, page: Vpn, order: Order) -> Result<(MappingEntries, u64), BusError> {
        let found = self.view().find(page)?;
        let count = order.frames() >> self.view().entry_order(found.level).k();
        Ok((MappingEntries { level: found.level, at: found.at, count }, found.word))
    }

    /// Writes what `change` makes of each entry of a mapping; returns whether
    /// it made anything of one.
    fn change(&mut self, at: (MappingEntries, u64), change: Change<'_>) -> Result<bool, BusError> {
        let (place, first) = at;
        let mut changed = false;
        for i in 0..place.count {
            let at = self.view().entry(place.at, i);
            let word = if i == 0 { first } else { self.view().read(at)? };
            if let Some(word) = change(&place, i, word) {
                changed = true;
                self.write(at, word)?;
            }
        }
        Ok(changed)
    }

    /// Makes the mapping of these frames invalid.
    fn break_mapping(&mut self, site: Site, order: Order, frame: Pfn) -> Result<(), MoveError> {
        let format = self.regime.format;
        let at = self.mapping_at(site.page, order)?;
        if !leads_to(format, &at.0, at.1, order, frame) {
            return Err(MoveError::NotMapped { site });
        }
        let suspend =
            |place: &MappingEntries, _, word| Some(encode::suspend(format, place.level, word));
        Ok(self.change(at, &suspend).map(drop)?)
    }

    /// Returns true if descriptors of this order can lead to the frame.
    fn reaches(&self, order: Order, frame: Pfn) -> bool {
        let format = self.regime.format;
        let supersection = format == Format::ArmV7 && order == Order::known(12);
        let pa_bits = if supersection { 40 } else { format.pa_bits() };
        let end = frame.raw().saturating_add(order.frames());
        end <= 1 << (pa_bits - swath_arch::BASE_PAGE_SHIFT)
    }
}

/// Calls `act` for every mapping of a block, with its order and first frame.
fn each_mapping<W: DerefMut<Target = [u64]>, E>(
    reverse: &ReverseMap<W>,
    start: Pfn,
    order: Order,
    mut act: impl FnMut(Order, Pfn, Site) -> Result<(), E>,
) -> Result<(), E> {
    reverse
        .mappings_within(start, order)
        .try_for_each(|(order, frame, site)| act(order, frame, site))
}

/// Copies 2^`order` frames, or a first part.
fn copy<C: PhysMemory + ?Sized>(
    memory: &C,
    from: Pfn,
    to: Pfn,
    order: Order,
) -> Result<(), BusError> {
    let (from, to) = (from.address().raw(), to.address().raw());
    for offset in (0..order.frames() * BASE_PAGE_BYTES).step_by(8) {
        let word = memory.read_u64(PhysAddr::new(from + offset))?;
        memory.write_u64(PhysAddr::new(to + offset), word)?;
    }
    Ok(())
}

impl<W: DerefMut<Target = [u64]>> Pmap<W> {
    /// Moves the content of 2^`order` frames from `from` to `to` through
    /// `memory`, and changes every mapping of them in every space; what is known
    /// of the frames (that they were accessed, or written) goes with them.
    /// Nobody else may use the target, which no mapping leads to; nobody may
    /// reach the block other than through mappings until it has moved. Returns
    /// how many mappings were changed. Costs as the module says.
    ///
    /// # Errors
    /// [`MoveError`]; nothing has changed but in the target's content. This
    /// relies on memory that answered an access to answer it again.
    pub fn move_block<S: Spaces, C: PhysMemory + ?Sized>(
        &mut self,
        spaces: &mut S,
        memory: &C,
        from: Pfn,
        to: Pfn,
        order: Order,
    ) -> Result<u64, MoveError> {
        self.admit_move(from, to, order)?;
        let mut mappings = 0;
        let broken = each_mapping(&self.reverse, from, order, |class, frame, site| {
            let space = site.space;
            let (space, invalidate) = spaces.reach(space).ok_or(MoveError::NoSpace { space })?;
            if !space.reaches(class, moved(frame, from, to)) {
                return Err(MoveError::OutOfReach { space: site.space });
            }
            space.break_mapping(site, class, frame)?;
            invalidate(site.space, flush(site, class));
            mappings += 1;
            Ok(())
        });
        if let Err(error) = broken.and_then(|()| Ok(copy(memory, from, to, order)?)) {
            self.mend(spaces, from, order);
            return Err(error);
        }
        let made = each_mapping(&self.reverse, from, order, |class, frame, site| {
            let Some((space, _)) = spaces.reach(site.space) else { return Ok(()) };
            let format = space.regime.format;
            let to = moved(frame, from, to);
            let at = space.mapping_at(site.page, class)?;
            let made = space.change(at, &|place, i, word| {
                let word = encode::resume(format, place.level, word);
                Some(retarget(format, place, i, word, to))
            });
            made.map(drop)
        });
        if let Err(error) = made {
            self.unmake(spaces, from, order);
            // Memory that answered a moment ago answers again.
            let _ = copy(memory, to, from, order);
            self.mend(spaces, from, order);
            return Err(error.into());
        }
        self.reverse.move_block(from, to, order);
        self.statistics.moved_frames += order.frames();
        self.statistics.moved_mappings += mappings;
        Ok(mappings)
    }

    /// Checks that the block can move there as a whole.
    fn admit_move(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MoveError> {
        let known = self.reverse.frames();
        for start in [from, to] {
            if !start.is_aligned(order.k()) {
                return Err(MoveError::Misaligned { frame: start, order });
            }
            if !known.contains(start) {
                return Err(MoveError::UnknownFrame { frame: start });
            }
            if order.frames() > known.end() - start {
                return Err(MoveError::UnknownFrame { frame: known.end() });
            }
        }
        if let Some(order) = self.reverse.largest(from).filter(|&largest| largest > order) {
            return Err(MoveError::Superpage { order });
        }
        let around = self.reverse.largest(to).map(|_| to);
        let within = || self.reverse.mappings_within(to, order).map(|(_, frame, _)| frame).min();
        if let Some(frame) = around.or_else(within).or((from == to).then_some(to)) {
            return Err(MoveError::TargetMapped { frame });
        }
        if self.reverse.entries_to_move(from, to, order) > u64::from(self.reverse.free_entries()) {
            return Err(MoveError::OutOfEntries);
        }
        Ok(())
    }

    /// Makes those mappings of the block valid again that are not.
    fn mend<S: Spaces>(&self, spaces: &mut S, start: Pfn, order: Order) {
        let _ = each_mapping(&self.reverse, start, order, |class, frame, site| {
            let Some((space, _)) = spaces.reach(site.space) else { return Ok(()) };
            let format = space.regime.format;
            let Ok(at) = space.mapping_at(site.page, class) else { return Ok(()) };
            // What cannot be mended does not keep the others from it.
            let _ = space.change(at, &|place, _, word| {
                let resumed = encode::resume(format, place.level, word);
                let broken =
                    !encode::in_use(format, word) && leads_to(format, place, resumed, class, frame);
                broken.then_some(resumed)
            });
            Ok::<(), BusError>(())
        });
    }

    /// Breaks those mappings of the block that were made already, so that they
    /// say again what they said.
    fn unmake<S: Spaces>(&self, spaces: &mut S, start: Pfn, order: Order) {
        let _ = each_mapping(&self.reverse, start, order, |class, frame, site| {
            let Some((space, invalidate)) = spaces.reach(site.space) else { return Ok(()) };
            let format = space.regime.format;
            let Ok(at) = space.mapping_at(site.page, class) else { return Ok(()) };
            let changed = space.change(at, &|place, i, word| {
                encode::in_use(format, word).then(|| {
                    let word = retarget(format, place, i, word, frame);
                    encode::suspend(format, place.level, word)
                })
            });
            if changed != Ok(false) {
                invalidate(site.space, flush(site, class));
            }
            Ok::<(), BusError>(())
        });
    }

    /// Demotes every mapping of order `order` of the block one size down, so
    /// that its frames can move apart. Returns whether there are none any more;
    /// there may be if there was no table or no PV entry: mappings that
    /// were not demoted stay.
    ///
    /// # Errors
    /// [`PmapError::NoSpace`], [`PmapError::Bus`]; some superpages may have
    /// been demoted.
    pub fn demote_block<S: Spaces>(
        &mut self,
        spaces: &mut S,
        start: Pfn,
        order: Order,
    ) -> Result<bool, PmapError> {
        while let Some((_, site)) = self.reverse.first(Some(order), start) {
            if order == Order::BASE || !self.demote_or_keep(spaces, site, DemotionCause::Move)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the frame of the target that belongs to a frame of the block.
fn moved(frame: Pfn, from: Pfn, to: Pfn) -> Pfn {
    to + (frame - from)
}

const fn flush(site: Site, order: Order) -> Flush {
    Flush { range: PageRange::new(site.page, order.frames()), links_changed: false }
}
