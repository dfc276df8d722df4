//! From addresses to blocks: which block an access lies in, and which accesses
//! are written.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::access::event::Sampling;
use crate::access::event::{AccessKind, MemoryAccess};
use crate::heap::calls::Call;
use crate::heap::events::{HeapEvent, HeapTotals, PIECE_BYTES};
use crate::heap::file::HeapWriter;
use crate::programs::CommandPrograms;

/// An allocated block.
struct Held {
    block: u64,
    size_bytes: u64,
    /// A bit for each piece that was accessed.
    pieces: Vec<u64>,
}

impl Held {
    fn new(block: u64, size_bytes: u64) -> Self {
        Self { block, size_bytes, pieces: Vec::new() }
    }

    /// Returns true if any of these bytes lies in a piece that was not accessed before.
    fn is_first(&mut self, offset_bytes: u64, len_bytes: u64) -> bool {
        let (first, last) =
            (offset_bytes / PIECE_BYTES, (offset_bytes + len_bytes - 1) / PIECE_BYTES);
        let words = (last / 64) as usize + 1;
        if self.pieces.len() < words {
            self.pieces.resize(words, 0);
        }
        let mut is_first = false;
        for piece in first..=last {
            let (word, bit) = (&mut self.pieces[(piece / 64) as usize], 1 << (piece % 64));
            is_first |= *word & bit == 0;
            *word |= bit;
        }
        is_first
    }

    /// Gives it another size; pieces beyond it count as not accessed.
    fn resize(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
        let kept = size_bytes.div_ceil(PIECE_BYTES);
        self.pieces.truncate(kept.div_ceil(64) as usize);
        if let Some(last) = self.pieces.get_mut((kept / 64) as usize) {
            *last &= (1 << (kept % 64)) - 1;
        }
    }
}

/// Turns calls and accesses into events.
///
/// `live` holds what is allocated by its address, and no two overlap. A block
/// whose `realloc` has begun and not ended is in `resizing` instead, by its
/// thread: what happens to it meanwhile is the allocator's doing.
pub(crate) struct Live<W: Write> {
    writer: HeapWriter<W>,
    sampling: Option<Sampling>,
    live: BTreeMap<u64, Held>,
    resizing: BTreeMap<u32, (u64, Held)>,
    /// Blocks so far.
    blocks: u64,
    /// Lowest and highest address that was ever in a block.
    span: (u64, u64),
    /// Accesses left out since the last event.
    skipped: u64,
    totals: HeapTotals,
}

impl<W: Write> Live<W> {
    pub(crate) fn new(writer: HeapWriter<W>, sampling: Option<Sampling>) -> Self {
        Self {
            writer,
            sampling,
            live: BTreeMap::new(),
            resizing: BTreeMap::new(),
            blocks: 0,
            span: (u64::MAX, 0),
            skipped: 0,
            totals: HeapTotals::default(),
        }
    }

    fn put(&mut self, event: HeapEvent) -> io::Result<()> {
        match std::mem::take(&mut self.skipped) {
            0 => {}
            accesses => self.writer.push(HeapEvent::Skip { accesses })?,
        }
        self.writer.push(event)
    }

    /// O(log blocks).
    pub(crate) fn call(&mut self, thread: u32, call: Call) -> io::Result<()> {
        match call {
            Call::Start => Ok(()),
            Call::Allocated { addr: 0, .. } => {
                self.totals.failed_calls += 1;
                Ok(())
            }
            Call::Allocated { addr, size_bytes, align_bytes, zeroed } => {
                self.allocate(thread, addr, size_bytes, align_bytes, zeroed)
            }
            Call::Freed { addr } => match self.live.remove(&addr) {
                Some(held) => self.put(HeapEvent::Release { block: held.block, thread }),
                None => {
                    self.totals.unknown_calls += 1;
                    Ok(())
                }
            },
            Call::Resizing { addr } => {
                // One that never ended has lost its end.
                if let Some((_, held)) = self.resizing.remove(&thread) {
                    self.totals.lost_calls += 1;
                    self.put(HeapEvent::Release { block: held.block, thread })?;
                }
                match self.live.remove(&addr) {
                    Some(held) => {
                        self.resizing.insert(thread, (addr, held));
                    }
                    None => self.totals.unknown_calls += 1,
                }
                Ok(())
            }
            Call::Resized { addr, size_bytes } => match (self.resizing.remove(&thread), addr) {
                (None, 0) => {
                    self.totals.failed_calls += 1;
                    Ok(())
                }
                (Some((addr, held)), 0) => {
                    self.totals.failed_calls += 1;
                    self.hold(thread, addr, held)
                }
                // It was unknown, and is known from now on.
                (None, addr) => self.allocate(thread, addr, size_bytes, 1, false),
                (Some((_, mut held)), addr) => {
                    held.resize(size_bytes);
                    self.put(HeapEvent::Resize { block: held.block, size_bytes, thread })?;
                    self.hold(thread, addr, held)
                }
            },
        }
    }

    fn allocate(
        &mut self,
        thread: u32,
        addr: u64,
        size_bytes: u64,
        align_bytes: u64,
        zeroed: bool,
    ) -> io::Result<()> {
        let block = self.blocks;
        self.blocks += 1;
        self.put(HeapEvent::Allocate { block, size_bytes, align_bytes, zeroed, thread })?;
        self.hold(thread, addr, Held::new(block, size_bytes))
    }

    /// Enters a block. What lies there already was released by a call that is
    /// missing. A block of no bytes has its address to itself.
    fn hold(&mut self, thread: u32, addr: u64, held: Held) -> io::Result<()> {
        let end = |addr: u64, held: &Held| addr.saturating_add(held.size_bytes.max(1));
        let new_end = end(addr, &held);
        while let Some((&at, other)) = self.live.range(..new_end).next_back() {
            if end(at, other) <= addr {
                break;
            }
            let block = other.block;
            self.live.remove(&at);
            self.totals.lost_calls += 1;
            self.put(HeapEvent::Release { block, thread })?;
        }
        self.span = (self.span.0.min(addr), self.span.1.max(new_end));
        self.live.insert(addr, held);
        Ok(())
    }

    /// Takes a read or a write. What goes beyond its block is cut at the
    /// block's end. O(log blocks).
    #[inline]
    pub(crate) fn access(&mut self, access: MemoryAccess) -> io::Result<()> {
        let addr = access.addr.raw();
        let near = (self.span.0..self.span.1).contains(&addr);
        let found = if near { self.live.range_mut(..=addr).next_back() } else { None };
        let found = found.filter(|(at, held)| addr - **at < held.size_bytes);
        let Some((&at, held)) = found else {
            self.totals.elsewhere += 1;
            return Ok(());
        };
        let (block, offset_bytes) = (held.block, addr - at);
        let len = u64::from(access.len_bytes).min(held.size_bytes - offset_bytes);
        let is_first = held.is_first(offset_bytes, len);
        let nth = self.totals.reads + self.totals.writes;
        let keep =
            is_first || self.sampling.is_none_or(|s| nth % s.period_accesses < s.burst_accesses);
        let len_bytes = len as u16;
        let event = if access.kind == AccessKind::Write {
            self.totals.writes += 1;
            HeapEvent::Write { block, offset_bytes, len_bytes }
        } else {
            self.totals.reads += 1;
            HeapEvent::Read { block, offset_bytes, len_bytes }
        };
        if keep {
            return self.put(event);
        }
        self.skipped += 1;
        Ok(())
    }

    /// Ends the recording; `lost_calls` are those that never came here. Gives
    /// the number of events and the totals.
    pub(crate) fn finish(
        mut self,
        lost_calls: u64,
        programs: &CommandPrograms,
    ) -> io::Result<(u64, HeapTotals)> {
        self.totals.lost_calls += lost_calls;
        if self.skipped > 0 {
            self.writer.push(HeapEvent::Skip { accesses: self.skipped })?;
        }
        let events = self.writer.count();
        self.writer.finish_with(&self.totals, programs)?;
        Ok((events, self.totals))
    }
}

#[cfg(test)]
mod tests {
    use swath_arch::VirtAddr;

    use super::*;
    use crate::heap::events::HeapHeader;
    use crate::heap::file::HeapReader;

    fn allocated(addr: u64, size_bytes: u64) -> Call {
        Call::Allocated { addr, size_bytes, align_bytes: 1, zeroed: false }
    }

    /// Returns what is written of these calls of threads and accesses.
    fn written(
        sampling: Option<Sampling>,
        act: impl FnOnce(&mut Live<&mut Vec<u8>>) -> io::Result<()>,
    ) -> (Vec<HeapEvent>, HeapTotals) {
        let mut bytes = Vec::new();
        let head = HeapHeader { program: String::new(), sampling };
        let mut live = Live::new(HeapWriter::new(&mut bytes, &head, 1).unwrap(), sampling);
        act(&mut live).unwrap();
        let (count, totals) = live.finish(0, &CommandPrograms::default()).unwrap();
        let mut reader = HeapReader::new(&bytes[..]).unwrap();
        let events: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(events.len() as u64, count);
        assert_eq!(reader.totals(), Some(&totals));
        (events, totals)
    }

    fn read(live: &mut Live<&mut Vec<u8>>, addr: u64, len_bytes: u16) -> io::Result<()> {
        live.access(MemoryAccess::new(VirtAddr::new(addr), len_bytes, AccessKind::Read).unwrap())
    }

    #[test]
    fn accesses_find_their_blocks() {
        let (events, totals) = written(None, |live| {
            live.call(0, allocated(1000, 100))?;
            live.call(0, allocated(1100, 0))?;
            live.call(0, allocated(1200, 8))?;
            for addr in [999, 1000, 1099, 1100, 1199, 1200, 1208, 5000] {
                read(live, addr, 4)?;
            }
            live.call(0, Call::Freed { addr: 1000 })?;
            read(live, 1000, 4)
        });
        let reads: Vec<_> = events
            .iter()
            .filter_map(|event| match *event {
                HeapEvent::Read { block, offset_bytes, len_bytes } => {
                    Some((block, offset_bytes, len_bytes))
                }
                _ => None,
            })
            .collect();
        assert_eq!(reads, [(0, 0, 4), (0, 99, 1), (2, 0, 4)]);
        assert_eq!((totals.reads, totals.elsewhere), (3, 6));
    }

    #[test]
    fn a_realloc_that_moves_fails_or_is_unknown() {
        let resized = |addr, size_bytes| Call::Resized { addr, size_bytes };
        let (events, totals) = written(None, |live| {
            live.call(0, allocated(1000, 100))?;
            live.call(0, Call::Resizing { addr: 1000 })?;
            // The allocator's copying, and another thread that gets the place.
            read(live, 1000, 8)?;
            live.call(1, allocated(1000, 50))?;
            live.call(0, resized(2000, 200))?;
            read(live, 2100, 8)?;
            live.call(0, Call::Resizing { addr: 2000 })?;
            live.call(0, resized(0, 1 << 60))?;
            read(live, 2100, 8)?;
            live.call(0, Call::Resizing { addr: 7000 })?;
            live.call(0, resized(7500, 10))?;
            live.call(0, Call::Freed { addr: 9 })
        });
        let allocate = |block, size_bytes, thread| HeapEvent::Allocate {
            block,
            size_bytes,
            align_bytes: 1,
            zeroed: false,
            thread,
        };
        let read = HeapEvent::Read { block: 0, offset_bytes: 100, len_bytes: 8 };
        let resize = HeapEvent::Resize { block: 0, size_bytes: 200, thread: 0 };
        let expected =
            [allocate(0, 100, 0), allocate(1, 50, 1), resize, read, read, allocate(2, 10, 0)];
        assert_eq!(events, expected);
        assert_eq!((totals.failed_calls, totals.unknown_calls, totals.elsewhere), (1, 2, 1));
        assert_eq!(totals.lost_calls, 0);
    }

    /// A block that lies where others do: their releases are missing.
    #[test]
    fn a_missing_release_is_made_up_for() {
        let (events, totals) = written(None, |live| {
            live.call(0, allocated(1000, 100))?;
            live.call(0, allocated(1200, 100))?;
            live.call(0, allocated(1300, 100))?;
            live.call(0, allocated(1050, 200))
        });
        let released: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                HeapEvent::Release { block, .. } => Some(*block),
                _ => None,
            })
            .collect();
        assert_eq!((released, totals.lost_calls), (vec![1, 0], 2));
    }

    /// Against a model: a set of pieces, and a count.
    #[test]
    fn sampling_keeps_bursts_and_first_accesses() {
        use swath_arch::testing::Random;
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (burst, period) = (3, 50);
            let mut expected = Vec::new();
            let mut size = 70_000;
            let (events, totals) = written(Sampling::new(burst, period), |live| {
                live.call(0, allocated(4096, size))?;
                let mut touched = std::collections::BTreeSet::new();
                for nth in 0..3000 {
                    if nth == 1500 {
                        size = 40_000;
                        live.call(0, Call::Resizing { addr: 4096 })?;
                        live.call(0, Call::Resized { addr: 4096, size_bytes: size })?;
                    }
                    if nth == 2000 {
                        size = 60_000;
                        live.call(0, Call::Resizing { addr: 4096 })?;
                        live.call(0, Call::Resized { addr: 4096, size_bytes: size })?;
                        touched.retain(|&piece| piece < 40_000_u64.div_ceil(PIECE_BYTES));
                    }
                    let at = random.within(0..size);
                    read(live, 4096 + at, 8)?;
                    let last = (at + 7).min(size - 1);
                    let mut first = touched.insert(at / PIECE_BYTES);
                    first |= touched.insert(last / PIECE_BYTES);
                    if first || nth % period < burst {
                        expected.push(at);
                    }
                }
                Ok(())
            });
            let read: Vec<_> = events
                .iter()
                .filter_map(|event| match event {
                    HeapEvent::Read { offset_bytes, .. } => Some(*offset_bytes),
                    _ => None,
                })
                .collect();
            assert_eq!(read, expected, "seed {seed}");
            assert_eq!(totals.reads, 3000, "seed {seed}");
        }
    }
}
