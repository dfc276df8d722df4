//! The conventional system's page table and its frames: one word for each page, mapped at
//! the first access and unmapped in a loop (section V of Böhnert and Scholl).
//!
//! The table is bytes of physical memory, which the conventional unit of `swath-hw` reads. A
//! word has the fields of a data entry of [`validity`]; one without rights maps nothing. Free
//! frames are a list through one word per frame, as those of the regions are, so that the two
//! systems differ in nothing but what the paper compares.

use swath_arch::{BusError, Extent, Pfn, PhysAddr, PhysMemory, Vpn, validity};

/// Reasons why a page was not mapped or unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// No frame is free.
    #[error("no frame is free")]
    OutOfFrames,
    /// A page beyond the table.
    #[error("page {page} is beyond the table")]
    OutOfRange {
        /// The page.
        page: Vpn,
    },
    /// A page that has a frame.
    #[error("page {page} is mapped")]
    AlreadyMapped {
        /// The page.
        page: Vpn,
    },
    /// Memory does not answer.
    #[error(transparent)]
    Bus(#[from] BusError),
}

const NONE: u32 = u32::MAX;

/// A page table of 2^k words over a pool of frames.
///
/// Invariants: each frame is on the free list or in exactly one word with rights; `mapped`
/// counts the latter.
#[derive(Debug)]
pub struct DirectTable<M> {
    memory: M,
    base: PhysAddr,
    pages_log2: u32,
    frames: Extent,
    /// For each frame that was used the next free one.
    links: Vec<u32>,
    head: u32,
    /// Frames from this one on were never used.
    fresh: u32,
    mapped: u32,
    link_words: u64,
}

impl<M: PhysMemory> DirectTable<M> {
    /// A table of 2^`pages_log2` words from `base` on, which are set to zero, over `frames`.
    /// O(N) for N pages.
    ///
    /// # Errors
    /// [`TableError::Bus`] where no memory answers.
    pub fn new(
        memory: M,
        base: PhysAddr,
        pages_log2: u32,
        frames: Extent,
    ) -> Result<Self, TableError> {
        for page in 0..1_u64 << pages_log2 {
            memory.write_u32(word_at(base, page), 0)?;
        }
        let links = vec![NONE; frames.count as usize];
        let (head, fresh, mapped, link_words) = (NONE, 0, 0, 0);
        Ok(Self { memory, base, pages_log2, frames, links, head, fresh, mapped, link_words })
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        1 << self.pages_log2
    }

    /// Pages that have a frame.
    pub fn mapped_pages(&self) -> u64 {
        self.mapped.into()
    }

    /// Words of the free list read and written so far.
    pub fn link_words(&self) -> u64 {
        self.link_words
    }

    fn word(&self, page: Vpn) -> Result<PhysAddr, TableError> {
        if page.raw() < self.pages() {
            Ok(word_at(self.base, page.raw()))
        } else {
            Err(TableError::OutOfRange { page })
        }
    }

    /// Returns true if a page has a frame. O(1).
    ///
    /// # Errors
    /// [`TableError`] beyond the table.
    #[inline]
    pub fn is_mapped(&self, page: Vpn) -> Result<bool, TableError> {
        Ok(self.memory.read_u32(self.word(page)?)? & RIGHTS != 0)
    }

    /// The frame of a page. O(1).
    ///
    /// # Errors
    /// [`TableError`] beyond the table.
    pub fn translate(&self, page: Vpn) -> Result<Option<Pfn>, TableError> {
        let word = self.memory.read_u32(self.word(page)?)?;
        Ok((word & RIGHTS != 0).then(|| Pfn::new(validity::FRAME.get(u64::from(word)))))
    }

    /// Gives a page a frame: what the handler of a page fault does. O(1).
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    #[inline]
    pub fn map(&mut self, page: Vpn) -> Result<(), TableError> {
        let at = self.word(page)?;
        if self.memory.read_u32(at)? & RIGHTS != 0 {
            return Err(TableError::AlreadyMapped { page });
        }
        let index = if self.head == NONE { self.fresh } else { self.head };
        if u64::from(index) >= self.frames.count {
            return Err(TableError::OutOfFrames);
        }
        let frame = self.frames.start.raw() + u64::from(index);
        self.memory.write_u32(at, validity::FRAME.set(u64::from(RIGHTS), frame) as u32)?;
        if self.head == NONE {
            self.fresh += 1;
        } else {
            self.head = self.links[index as usize];
            self.link_words += 1;
        }
        self.mapped += 1;
        Ok(())
    }

    /// Takes the frames of pages `from` to `end`, as far as they have any. O(`end` − `from`):
    /// the loop that the paper does without.
    ///
    /// # Errors
    /// [`TableError`] beyond the table.
    #[inline]
    pub fn unmap(&mut self, from: u64, end: u64) -> Result<(), TableError> {
        if end > self.pages() {
            return Err(TableError::OutOfRange { page: Vpn::new(self.pages()) });
        }
        for page in from..end {
            let at = word_at(self.base, page);
            let word = self.memory.read_u32(at)?;
            if word & RIGHTS == 0 {
                continue;
            }
            self.memory.write_u32(at, 0)?;
            let index = (validity::FRAME.get(u64::from(word)) - self.frames.start.raw()) as u32;
            self.links[index as usize] = self.head;
            self.head = index;
            self.link_words += 1;
            self.mapped -= 1;
        }
        Ok(())
    }

    /// Walks the invariants. O(pages + frames).
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = vec![false; self.frames.count as usize];
        let mut take = |index: u64| match seen.get_mut(index as usize) {
            Some(seen) if !*seen => {
                *seen = true;
                Ok(())
            }
            _ => Err(format!("frame {index} is used twice or is none of the pool")),
        };
        let mut at = self.head;
        let mut free = self.frames.count - u64::from(self.fresh);
        while at != NONE {
            take(at.into())?;
            free += 1;
            at = self.links[at as usize];
        }
        let mut mapped = 0;
        for page in 0..self.pages() {
            if let Some(frame) = self.translate(Vpn::new(page)).map_err(|e| e.to_string())? {
                take(frame.raw().wrapping_sub(self.frames.start.raw()))?;
                mapped += 1;
            }
        }
        if mapped == self.mapped_pages() && mapped + free == self.frames.count {
            Ok(())
        } else {
            Err(format!("{mapped} pages are mapped and {free} frames free"))
        }
    }
}

/// Reading and writing, as in a word.
const RIGHTS: u32 = (validity::READ.mask() | validity::WRITE.mask()) as u32;

#[inline]
fn word_at(base: PhysAddr, page: u64) -> PhysAddr {
    base + validity::ENTRY_BYTES * page
}
