//! The tiers of checks that an allocator makes of its own words.
//!
//! The words in which an allocator keeps its state belong to the caller, so a stray
//! store or a flipped bit may change them. A tier is a type, chosen by who links
//! the allocator; [`Trusting`] costs nothing.
//!
//! | found | [`Trusting`] | [`Checked`] |
//! |---|---|---|
//! | a wrong free: foreign frame, free already | yes | yes |
//! | a word that would lead out of the storage | in `check()` | before it is followed |
//! | a frame about to be handed out that is allocated, or is none | in `check()` | before it is handed out |
//! | an area's record overwritten | | by its seal |
//! | a free frame that no word says is free | in `check()` | when it is freed, or when no other is left |
//! | a zone's states, links and mobilities | in `check()` | before they are followed or changed |
//! | a bank's record, its list or pool | in `check()` | by its two copies, before it is believed |
//! | a bank's trees, that name a word or block | in `check()` | when it is about to be handed out |
//!
//! An allocator of the checked tier stops at the first contradiction between its
//! words: that call and all later ones are refused with the same [`WordFault`].
//! Frames that are out stay out, and none is handed out again. What finds a
//! contradiction that no call has met is `find_fault`, which reads all words.
//!
//! ```
//! use swath_arch::{Extent, Pfn};
//! use swath_frame::{BuddyConfig, ByteRange, Checked, FrameAllocator, HeadOfList, MemoryMap, PageBuddy};
//!
//! let mut areas = [Extent::default(); 1];
//! let map = MemoryMap::new(&[ByteRange::of_frames(Extent::new(Pfn::new(0), 64))], &mut areas).unwrap();
//! type Buddy<'s> = PageBuddy<&'s mut [u64], HeadOfList, Checked>;
//! let mut words = vec![0; Buddy::storage_words(&map, BuddyConfig::PBS_ARMV7)];
//! let mut frames = Buddy::new(&map, BuddyConfig::PBS_ARMV7, &mut words).unwrap();
//! assert_eq!(frames.allocate_frame(), Some(Pfn::new(0)));
//! assert_eq!(frames.find_fault(), Ok(()));
//! assert_eq!(frames.fault(), None);
//! ```
//!
//! The checks are against mistakes and failing memory, one word at a time; they do
//! not contain who writes all words as he wants them. What the allocator holds
//! outside the caller's words (counts, places of the tables) is trusted.

use core::ops::DerefMut;

use crate::bits::store::{Guarded, Keep, Outvoted};

mod sealed {
    pub trait Sealed {}
}

/// A tier of checks.
pub trait Hardening: sealed::Sealed + Clone + core::fmt::Debug {
    /// True if words are checked before they are believed.
    #[doc(hidden)]
    const CHECKED: bool;

    /// A place for the contradiction at which an allocator has stopped.
    #[doc(hidden)]
    type Latch: Latch;

    /// A place for a note that a word differs from its copies.
    #[doc(hidden)]
    type Note: Clone + core::fmt::Debug + Default;

    /// A zone's words.
    #[doc(hidden)]
    type Words<W: DerefMut<Target = [u64]>>: Keep + ?Sized;

    #[doc(hidden)]
    fn read<W: DerefMut<Target = [u64]>>(storage: &Guarded<W, Self::Note>) -> &Self::Words<W>;

    #[doc(hidden)]
    fn write<W: DerefMut<Target = [u64]>>(
        storage: &mut Guarded<W, Self::Note>,
    ) -> &mut Self::Words<W>;

    /// Returns true if the note was made.
    #[doc(hidden)]
    fn is_noted(note: &mut Self::Note) -> bool;
}

/// A place for the first contradiction; in the tier that looks for none it is nothing.
#[doc(hidden)]
pub trait Latch: Clone + core::fmt::Debug + Default {
    /// No contradiction.
    const OPEN: Self;

    /// Returns the contradiction that is kept.
    fn fault(&self) -> Option<WordFault>;

    /// Keeps a contradiction, unless one is kept already; returns the one that is.
    fn close(&mut self, fault: WordFault) -> WordFault;
}

impl Latch for () {
    const OPEN: Self = ();

    #[inline(always)]
    fn fault(&self) -> Option<WordFault> {
        None
    }

    fn close(&mut self, fault: WordFault) -> WordFault {
        fault
    }
}

impl Latch for Option<WordFault> {
    const OPEN: Self = None;

    #[inline(always)]
    fn fault(&self) -> Option<WordFault> {
        self.as_ref().copied()
    }

    fn close(&mut self, fault: WordFault) -> WordFault {
        *self.get_or_insert(fault)
    }
}

/// The tier without checks of the allocator's own words.
#[derive(Clone, Copy, Default, Debug)]
pub struct Trusting;

/// The tier that checks words before they are believed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Checked;

impl sealed::Sealed for Trusting {}
impl sealed::Sealed for Checked {}

impl Hardening for Trusting {
    const CHECKED: bool = false;
    type Latch = ();
    type Note = ();
    type Words<W: DerefMut<Target = [u64]>> = [u64];

    #[inline(always)]
    fn read<W: DerefMut<Target = [u64]>>(storage: &Guarded<W, ()>) -> &[u64] {
        &storage.words
    }

    #[inline(always)]
    fn write<W: DerefMut<Target = [u64]>>(storage: &mut Guarded<W, ()>) -> &mut [u64] {
        &mut storage.words
    }

    #[inline(always)]
    fn is_noted((): &mut ()) -> bool {
        false
    }
}

impl Hardening for Checked {
    const CHECKED: bool = true;
    type Latch = Option<WordFault>;
    type Note = Outvoted;
    type Words<W: DerefMut<Target = [u64]>> = Guarded<W, Outvoted>;

    #[inline(always)]
    fn read<W: DerefMut<Target = [u64]>>(storage: &Guarded<W, Outvoted>) -> &Self::Words<W> {
        storage
    }

    #[inline(always)]
    fn write<W: DerefMut<Target = [u64]>>(
        storage: &mut Guarded<W, Outvoted>,
    ) -> &mut Self::Words<W> {
        storage
    }

    #[inline(always)]
    fn is_noted(note: &mut Outvoted) -> bool {
        note.is_noted()
    }
}

/// The table that a word of an allocator's storage belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Table {
    /// A bit for each frame that is not free.
    #[error("the bitmap of allocated frames")]
    Allocated,
    /// A bit for each free block of an order.
    #[error("the free blocks of order {order}")]
    Free {
        /// The order.
        order: u32,
    },
    /// The levels above such a bitmap, which say where it has ones.
    #[error("the summary of the free blocks of order {order}")]
    Summary {
        /// The order.
        order: u32,
    },
    /// The index of runs by their length.
    #[error("the index of runs of order {order}")]
    Runs {
        /// The order of a run's units.
        order: u32,
    },
    /// A bit for each unit handed out in a segment, and one for each joined to the next.
    #[error("the bits of segments handed out")]
    Segments,
    /// A bit for each page that is not free.
    #[error("the bits of pages in use")]
    Pages,
    /// The bits of isolated units, and of the free frames in them.
    #[error("the bits of isolated units and of their free frames")]
    Isolated,
    /// The records of slots: reservations, their parts and their queues.
    #[error("the records of reservations")]
    Reservations,
    /// The table from objects and pages to reservations.
    #[error("the table of reserved ranges")]
    Ranges,
    /// A list of short blocks of one length.
    #[error("the list of blocks of {frames} frames")]
    Kept {
        /// Frames of such a block.
        frames: u64,
    },
    /// The frames that the slots of a per-CPU front hold ready. A slot's number stands for the word, and
    /// the one after the last for what no CPU holds, the spare areas.
    #[error("the frames that CPUs hold ready")]
    Slots,
    /// The records of usable areas.
    #[error("the records of areas")]
    Areas,
    /// A state for each frame of a zone: a hole, in use, or of a free block.
    #[error("the states of frames")]
    States,
    /// The links of each frame, for when it is the first of a free block.
    #[error("the links of free blocks")]
    Links,
    /// The mobility of each pageblock.
    #[error("the mobilities of pageblocks")]
    Pageblocks,
    /// The records of a zone's banks.
    #[error("the records of banks")]
    Banks,
    /// Two bits for each frame of a bank: free or not, and of the zone or not.
    #[error("the frames of banks")]
    Frames,
    /// The lists, pools and sets of banks.
    #[error("the placement of banks")]
    Placement,
}

/// A word of an allocator's own storage that contradicts the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("word {word} of the storage, of {table}, cannot be {value:#018x}")]
pub struct WordFault {
    /// The table that the word belongs to.
    pub table: Table,
    /// Its index in the storage.
    pub word: usize,
    /// The value that it holds.
    pub value: u64,
}
