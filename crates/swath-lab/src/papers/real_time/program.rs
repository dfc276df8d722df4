//! Recorded programs as actions on a heap.
//!
//! A `realloc` is an allocation, writes of what is kept and a release: the paper's heaps
//! know nothing else. An access counts at its first byte, and at its last if it may
//! reach into another page.

use std::io::Read;

use foldhash::{HashMap, HashMapExt};

use crate::papers::real_time::workload::{ALIGN_BYTES, Action};
use swath_trace::container::FileError;
use swath_trace::heap::{HEAP_FORMAT, HeapEvent, HeapReader};

/// Accesses of no more bytes do not leave their page, as far as programs align them.
const WORD_BYTES: u64 = 16;

/// The actions of a recording. Numbers of allocations are used again.
#[derive(Default)]
pub struct Actions {
    live: HashMap<u64, (u32, u64)>,
    unused: Vec<u32>,
    next: u32,
}

/// The most actions of a recording, which are held in memory: 96 MiB of them.
const ACTIONS_MAX: u64 = 1 << 22;

impl Actions {
    /// All actions of a recording, in order. O(n) for n events and the pages that
    /// `realloc` copies.
    ///
    /// # Errors
    /// [`FileError`]; [`FileError::TooLarge`] for more than 2^22 actions.
    pub fn read<R: Read>(reader: HeapReader<R>) -> Result<Vec<Action>, FileError> {
        let mut state = Self { live: HashMap::new(), ..Self::default() };
        let mut actions = Vec::new();
        for event in reader {
            let event = event?;
            // An access gives two, a change of size one for each page and two.
            let more = match event {
                HeapEvent::Resize { size_bytes, .. } => 2 + size_bytes.div_ceil(4096),
                _ => 2,
            };
            if actions.len() as u64 + more > ACTIONS_MAX {
                return Err(HEAP_FORMAT.too_large(ACTIONS_MAX, "actions"));
            }
            state.push(event, &mut actions);
        }
        Ok(actions)
    }

    fn number(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn allocate(&mut self, block: u64, size_bytes: u64, align_bytes: u64, to: &mut Vec<Action>) {
        let id = self.number();
        self.live.insert(block, (id, size_bytes));
        let align_bytes = align_bytes.max(ALIGN_BYTES);
        to.push(Action::Allocate { id, size_bytes, align_bytes });
    }

    fn push(&mut self, event: HeapEvent, to: &mut Vec<Action>) {
        match event {
            HeapEvent::Allocate { block, size_bytes, align_bytes, .. } => {
                self.allocate(block, size_bytes, align_bytes, to);
            }
            HeapEvent::Resize { block, size_bytes, .. } => {
                let Some((old, old_bytes)) = self.live.remove(&block) else { return };
                self.allocate(block, size_bytes, ALIGN_BYTES, to);
                let new = self.live[&block].0;
                for offset in (0..old_bytes.min(size_bytes)).step_by(4096) {
                    to.push(Action::Access { id: new, offset, write: true });
                }
                to.push(Action::Free { id: old });
                self.unused.push(old);
            }
            HeapEvent::Release { block, .. } => {
                let Some((id, _)) = self.live.remove(&block) else { return };
                to.push(Action::Free { id });
                self.unused.push(id);
            }
            HeapEvent::Read { block, offset_bytes, len_bytes } => {
                self.access(block, offset_bytes, len_bytes, false, to);
            }
            HeapEvent::Write { block, offset_bytes, len_bytes } => {
                self.access(block, offset_bytes, len_bytes, true, to);
            }
            HeapEvent::Skip { .. } => {}
        }
    }

    fn access(&self, block: u64, offset: u64, len: u16, write: bool, to: &mut Vec<Action>) {
        let Some(&(id, _)) = self.live.get(&block) else { return };
        to.push(Action::Access { id, offset, write });
        let len = u64::from(len);
        if len > WORD_BYTES {
            to.push(Action::Access { id, offset: offset + len - 1, write });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resize_copies_and_numbers_are_used_again() {
        let mut state = Actions::default();
        let mut to = Vec::new();
        let thread = 0;
        let (align_bytes, zeroed) = (1, false);
        for event in [
            HeapEvent::Allocate { block: 0, size_bytes: 5000, align_bytes, zeroed, thread },
            HeapEvent::Resize { block: 0, size_bytes: 9000, thread },
            HeapEvent::Skip { accesses: 9 },
            HeapEvent::Read { block: 0, offset_bytes: 100, len_bytes: 64 },
            HeapEvent::Allocate { block: 1, size_bytes: 8, align_bytes: 64, zeroed, thread },
            HeapEvent::Release { block: 0, thread },
        ] {
            state.push(event, &mut to);
        }
        let access = |id, offset, write| Action::Access { id, offset, write };
        let expected = [
            Action::Allocate { id: 0, size_bytes: 5000, align_bytes: 16 },
            Action::Allocate { id: 1, size_bytes: 9000, align_bytes: 16 },
            access(1, 0, true),
            access(1, 4096, true),
            Action::Free { id: 0 },
            access(1, 100, false),
            access(1, 163, false),
            Action::Allocate { id: 0, size_bytes: 8, align_bytes: 64 },
            Action::Free { id: 1 },
        ];
        assert_eq!(to, expected);
    }

    /// A change of size copies what is kept: of 2^48 bytes 2^36 pages.
    #[test]
    fn a_short_recording_of_too_many_actions() {
        use swath_trace::heap::{HeapHeader, HeapTotals, HeapWriter, SIZE_MAX};
        for (size_bytes, fits) in [(1 << 30, true), (1 << 35, false), (SIZE_MAX, false)] {
            let mut writer = HeapWriter::new(Vec::new(), &HeapHeader::default(), 1).unwrap();
            let (align_bytes, zeroed, thread) = (1, false, 0);
            for event in [
                HeapEvent::Allocate { block: 0, size_bytes, align_bytes, zeroed, thread },
                HeapEvent::Resize { block: 0, size_bytes, thread },
            ] {
                writer.push(event).unwrap();
            }
            let file = writer.finish(&HeapTotals::default()).unwrap();
            let actions = Actions::read(HeapReader::new(&file[..]).unwrap());
            assert_eq!(actions.is_ok(), fits);
            if let Err(error) = actions {
                assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
            }
        }
    }
}
