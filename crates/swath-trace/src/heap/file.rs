//! Recordings of a heap as files.
//!
//! A signature, a version, and one zstd frame of events. Programs stay with a
//! few blocks and walk through them, so a block is named by its place among
//! those last used, and an offset by its distance from the last one in the same
//! block; zstd finds the repetitions. `docs/formats.md` describes each byte.
//!
//! Reading streams; memory grows with the blocks allocated at once, at most
//! [`LIVE_MAX`] of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use foldhash::fast::FixedState;

use crate::access::event::Sampling;
use crate::container::{Content, FileError, FileFormat, check_name, invalid, put_name};
use crate::heap::events::{HeapEvent, HeapHeader, HeapTotals, LIVE_MAX, SIZE_MAX};
use crate::input::{put_number, unzigzag, zigzag};
use crate::programs::CommandPrograms;
use crate::unpack::{Limit, Packer};

/// The format.
pub static HEAP_FORMAT: FileFormat = FileFormat {
    noun: "heap recording",
    magic: *b"SWHEAP\r\n",
    version: 2,
    oldest: 1,
    limit: Limit::STREAM,
};

/// Encoded events gathered before zstd sees them, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Bits 2 to 0 of an event's first byte.
mod code {
    pub(crate) const END: u8 = 0;
    pub(crate) const ALLOCATE: u8 = 1;
    pub(crate) const RELEASE: u8 = 2;
    pub(crate) const READ: u8 = 3;
    pub(crate) const WRITE: u8 = 4;
    pub(crate) const RESIZE: u8 = 5;
    pub(crate) const SKIP: u8 = 6;
}

/// Bits of a call's first byte: zeros, an alignment, a thread follow.
const ZEROED: u8 = 1 << 3;
const ALIGN: u8 = 1 << 4;
const THREAD: u8 = 1 << 5;

/// An access's length is `1 << bits 5 to 3`, or follows if these are
/// `LEN_FOLLOWS`.
const LEN_SHIFT: u32 = 3;
const LEN_LOG2_MAX: u8 = 5;
const LEN_FOLLOWS: u8 = 7;

/// Bits 7 and 6: the block's place among those last used, or `PLACE_FOLLOWS`.
const PLACE_SHIFT: u32 = 6;
const PLACE_FOLLOWS: u64 = 3;

/// Blocks last used that have a place.
const RECENT: usize = 16;

#[derive(Clone, Copy)]
struct Block {
    size_bytes: u64,
    /// Offset at which the last access began.
    offset_bytes: u64,
}

/// State that reader and writer both have after so many events.
///
/// Every block of `recent[..recent_len]` is in `live`, none twice; `live_bytes` is the sum
/// of all sizes in `live`.
#[derive(Default)]
struct HeapState {
    live: HashMap<u64, Block, FixedState>,
    /// Those last used, the last first.
    recent: [u64; RECENT],
    recent_len: usize,
    /// Bytes of all live blocks.
    live_bytes: u64,
    /// Blocks allocated so far.
    blocks: u64,
    /// Of the last call.
    thread: u32,
    events: u64,
    reads: u64,
    writes: u64,
    skipped: u64,
}

impl HeapState {
    /// Returns the reason why this event cannot come next, if there is one.
    fn fault(&self, event: &HeapEvent) -> Option<&'static str> {
        const NONE: &str = "a block that is not allocated";
        const SIZE: &str = "a size beyond 2^48 bytes";
        let fits = |size_bytes: u64, before: u64| {
            if size_bytes > SIZE_MAX {
                return Some(SIZE);
            }
            let others = self.live_bytes - before;
            let sum = others.checked_add(size_bytes);
            sum.is_none().then_some("2^64 bytes or more allocated at once")
        };
        match *event {
            HeapEvent::Allocate { block, size_bytes, align_bytes, .. } => {
                if block != self.blocks {
                    return Some("a block out of turn");
                }
                if self.live.len() >= LIVE_MAX {
                    return Some("more than 3670016 blocks allocated at once");
                }
                if !align_bytes.is_power_of_two() || align_bytes > SIZE_MAX {
                    return Some("an alignment that is no power of two up to 2^48");
                }
                fits(size_bytes, 0)
            }
            HeapEvent::Resize { block, size_bytes, .. } => {
                let Some(held) = self.live.get(&block) else { return Some(NONE) };
                fits(size_bytes, held.size_bytes)
            }
            HeapEvent::Release { block, .. } => (!self.live.contains_key(&block)).then_some(NONE),
            HeapEvent::Read { block, offset_bytes, len_bytes }
            | HeapEvent::Write { block, offset_bytes, len_bytes } => {
                let Some(held) = self.live.get(&block) else { return Some(NONE) };
                let end = offset_bytes.checked_add(len_bytes.into());
                let inside = len_bytes > 0 && end.is_some_and(|end| end <= held.size_bytes);
                (!inside).then_some("an access of no bytes or beyond its block")
            }
            HeapEvent::Skip { accesses } => match self.skipped.checked_add(accesses) {
                Some(_) if accesses > 0 => None,
                _ => Some("no accesses left out, or more than 2^64"),
            },
        }
    }

    /// The place of a block: below [`RECENT`] among those last used, from there
    /// on how many were allocated after it.
    fn place(&self, block: u64) -> u64 {
        match self.recent[..self.recent_len].iter().position(|&recent| recent == block) {
            Some(place) => place as u64,
            None => RECENT as u64 + (self.blocks - 1 - block),
        }
    }

    /// The inverse of [`place`](Self::place); what it gives need not be live.
    fn block_at(&self, place: u64) -> Option<u64> {
        match place.checked_sub(RECENT as u64) {
            None => self.recent[..self.recent_len].get(place as usize).copied(),
            Some(after) => self.blocks.checked_sub(1)?.checked_sub(after),
        }
    }

    /// Moves a block to the front of those last used.
    #[inline]
    fn used(&mut self, block: u64) {
        if self.recent_len > 0 && self.recent[0] == block {
            return;
        }
        let held = self.recent[..self.recent_len].iter().position(|&recent| recent == block);
        let end = held.unwrap_or_else(|| {
            self.recent_len = (self.recent_len + 1).min(RECENT);
            self.recent_len - 1
        });
        self.recent.copy_within(..end, 1);
        self.recent[0] = block;
    }

    /// Takes an event without a [`fault`](Self::fault).
    fn take(&mut self, event: &HeapEvent) {
        self.events += 1;
        match *event {
            HeapEvent::Allocate { block, size_bytes, thread, .. } => {
                self.live.insert(block, Block { size_bytes, offset_bytes: 0 });
                self.live_bytes += size_bytes;
                self.blocks += 1;
                self.thread = thread;
                self.used(block);
            }
            HeapEvent::Resize { block, size_bytes, thread } => {
                if let Some(held) = self.live.get_mut(&block) {
                    self.live_bytes = self.live_bytes - held.size_bytes + size_bytes;
                    held.size_bytes = size_bytes;
                }
                self.thread = thread;
                self.used(block);
            }
            HeapEvent::Release { block, thread } => {
                let held = self.live.remove(&block);
                self.live_bytes -= held.map_or(0, |held| held.size_bytes);
                self.thread = thread;
                let recent = &self.recent[..self.recent_len];
                if let Some(place) = recent.iter().position(|&recent| recent == block) {
                    self.recent.copy_within(place + 1..self.recent_len, place);
                    self.recent_len -= 1;
                }
            }
            HeapEvent::Read { block, offset_bytes, .. }
            | HeapEvent::Write { block, offset_bytes, .. } => {
                match event {
                    HeapEvent::Read { .. } => self.reads += 1,
                    _ => self.writes += 1,
                }
                if let Some(held) = self.live.get_mut(&block) {
                    held.offset_bytes = offset_bytes;
                }
                self.used(block);
            }
            HeapEvent::Skip { accesses } => self.skipped += accesses,
        }
    }

    /// Returns true if the totals can be those of these events.
    fn agrees(&self, totals: &HeapTotals) -> bool {
        let told = totals.reads.checked_add(totals.writes);
        let there = self.reads.checked_add(self.writes).and_then(|n| n.checked_add(self.skipped));
        told.is_some()
            && told == there
            && self.reads <= totals.reads
            && self.writes <= totals.writes
    }
}

/// Writes a recording.
///
/// Nothing but [`finish`](Self::finish) makes the file whole: without it a
/// reader reports it as cut short.
pub struct HeapWriter<W: Write> {
    packer: Packer<W>,
    chunk: Vec<u8>,
    state: HeapState,
}

impl<W: Write> HeapWriter<W> {
    /// Starts a recording. `level` is zstd's, 1 (fast) to 19 (small).
    ///
    /// # Errors
    /// Those of `to`, a level that zstd does not know, and
    /// [`io::ErrorKind::InvalidInput`] for a name or a sampling that cannot be.
    pub fn new(to: W, head: &HeapHeader, level: i32) -> io::Result<Self> {
        check_name(head.program.as_bytes()).map_err(invalid)?;
        let (burst, period) =
            head.sampling.map_or((0, 0), |s| (s.burst_accesses, s.period_accesses));
        if head.sampling.is_some() && Sampling::new(burst, period).is_none() {
            return Err(invalid("a sampling without accesses or without gaps"));
        }
        let packer = HEAP_FORMAT.begin(to, level)?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 64);
        put_name(&mut chunk, &head.program);
        put_number(&mut chunk, burst);
        put_number(&mut chunk, period);
        Ok(Self { packer, chunk, state: HeapState::default() })
    }

    /// Adds an event. O(1).
    ///
    /// # Errors
    /// Those of the writer below; [`io::ErrorKind::InvalidInput`] for what
    /// [`HeapEvent`] excludes, which is not written.
    pub fn push(&mut self, event: HeapEvent) -> io::Result<()> {
        if let Some(what) = self.state.fault(&event) {
            return Err(invalid(what));
        }
        match event {
            HeapEvent::Allocate { size_bytes, align_bytes, zeroed, thread, .. } => {
                let mut first = code::ALLOCATE;
                if zeroed {
                    first |= ZEROED;
                }
                if align_bytes > 1 {
                    first |= ALIGN;
                }
                self.put_call(first, thread);
                if align_bytes > 1 {
                    put_number(&mut self.chunk, align_bytes.trailing_zeros().into());
                }
                put_number(&mut self.chunk, size_bytes);
            }
            HeapEvent::Resize { block, size_bytes, thread } => {
                let place = self.state.place(block);
                self.put_call(code::RESIZE | short(place), thread);
                self.put_place(place);
                put_number(&mut self.chunk, size_bytes);
            }
            HeapEvent::Release { block, thread } => {
                let place = self.state.place(block);
                self.put_call(code::RELEASE | short(place), thread);
                self.put_place(place);
            }
            HeapEvent::Read { block, offset_bytes, len_bytes } => {
                self.put_access(code::READ, block, offset_bytes, len_bytes);
            }
            HeapEvent::Write { block, offset_bytes, len_bytes } => {
                self.put_access(code::WRITE, block, offset_bytes, len_bytes);
            }
            HeapEvent::Skip { accesses } => {
                self.chunk.push(code::SKIP);
                put_number(&mut self.chunk, accesses);
            }
        }
        self.state.take(&event);
        if self.chunk.len() >= CHUNK_BYTES {
            self.packer.push(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }

    fn put_call(&mut self, first: u8, thread: u32) {
        if thread == self.state.thread {
            self.chunk.push(first);
        } else {
            self.chunk.push(first | THREAD);
            put_number(&mut self.chunk, thread.into());
        }
    }

    fn put_place(&mut self, place: u64) {
        if place >= PLACE_FOLLOWS {
            put_number(&mut self.chunk, place - PLACE_FOLLOWS);
        }
    }

    fn put_access(&mut self, code: u8, block: u64, offset_bytes: u64, len_bytes: u16) {
        let place = self.state.place(block);
        let log2 = len_bytes.trailing_zeros() as u8;
        let is_short = len_bytes.is_power_of_two() && log2 <= LEN_LOG2_MAX;
        let len = if is_short { log2 } else { LEN_FOLLOWS };
        self.chunk.push(code | len << LEN_SHIFT | short(place));
        if !is_short {
            put_number(&mut self.chunk, len_bytes.into());
        }
        self.put_place(place);
        let last = self.state.live.get(&block).map_or(0, |held| held.offset_bytes);
        put_number(&mut self.chunk, zigzag(offset_bytes.wrapping_sub(last)));
    }

    /// Events so far.
    pub fn count(&self) -> u64 {
        self.state.events
    }

    /// Ends the recording with what the whole run did, and gives the writer
    /// back.
    ///
    /// # Errors
    /// Those of the writer; [`io::ErrorKind::InvalidInput`] if the accesses
    /// written and left out are not those of `totals`.
    pub fn finish(self, totals: &HeapTotals) -> io::Result<W> {
        self.finish_with(totals, &CommandPrograms::default())
    }

    /// As [`finish`](Self::finish), with the programs of the command that was
    /// recorded.
    ///
    /// # Errors
    /// As [`finish`](Self::finish); [`io::ErrorKind::InvalidInput`] for a list
    /// that no reader takes.
    pub fn finish_with(mut self, totals: &HeapTotals, programs: &CommandPrograms) -> io::Result<W> {
        if !self.state.agrees(totals) {
            return Err(invalid("totals that are not those of the events"));
        }
        self.chunk.push(code::END);
        put_number(&mut self.chunk, self.state.events);
        numbers(totals).into_iter().for_each(|number| put_number(&mut self.chunk, number));
        programs.put(&mut self.chunk)?;
        self.packer.push(&self.chunk)?;
        self.packer.finish()
    }
}

/// A place as bits 7 and 6.
fn short(place: u64) -> u8 {
    (place.min(PLACE_FOLLOWS) as u8) << PLACE_SHIFT
}

/// The totals in the order of the file.
fn numbers(totals: &HeapTotals) -> [u64; 6] {
    let HeapTotals { reads, writes, elsewhere, failed_calls, unknown_calls, lost_calls } = *totals;
    [reads, writes, elsewhere, failed_calls, unknown_calls, lost_calls]
}

/// Reads a recording event by event; after an error or the end there is
/// nothing more.
pub struct HeapReader<R: Read> {
    content: Content<R>,
    head: HeapHeader,
    state: HeapState,
    totals: Option<HeapTotals>,
    programs: Option<CommandPrograms>,
    ended: bool,
}

impl HeapReader<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`new`](HeapReader::new), and if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::new(File::open(path)?)
    }
}

impl<R: Read> HeapReader<R> {
    /// Reads what stands before the events.
    ///
    /// # Errors
    /// A [`FileError`] that names the byte.
    pub fn new(from: R) -> Result<Self, FileError> {
        let mut content = Content::open(from, &HEAP_FORMAT)?;
        let program = content.name("the program's name")?;
        let offset = content.offset();
        let burst = content.number("the sampling")?;
        let period = content.number("the sampling")?;
        let sampling = Sampling::new(burst, period);
        if sampling.is_none() && (burst, period) != (0, 0) {
            let what = "a sampling without accesses or without gaps";
            return Err(HEAP_FORMAT.malformed(offset, what));
        }
        let head = HeapHeader { program, sampling };
        Ok(Self {
            content,
            head,
            state: HeapState::default(),
            totals: None,
            programs: None,
            ended: false,
        })
    }

    /// Returns the facts that stand before the events.
    pub fn head(&self) -> &HeapHeader {
        &self.head
    }

    /// Returns the totals; `None` before the last event is read and
    /// the file's checksum was found right.
    pub fn totals(&self) -> Option<&HeapTotals> {
        self.totals.as_ref()
    }

    /// Blocks that are allocated after the last event.
    pub fn live_blocks(&self) -> u64 {
        self.state.live.len() as u64
    }

    /// Bytes asked for of all blocks that are allocated after the last event.
    pub fn live_bytes(&self) -> u64 {
        self.state.live_bytes
    }

    /// Programs of the command that was recorded, from version 2 on; `None`
    /// before the end.
    pub fn programs(&self) -> Option<&CommandPrograms> {
        self.programs.as_ref()
    }

    fn event(&mut self) -> Result<Option<HeapEvent>, FileError> {
        let offset = self.content.offset();
        let malformed = |what| HEAP_FORMAT.malformed(offset, what);
        let first = self.content.byte("an event")?;
        let code = first & 7;
        let unused = match code {
            code::ALLOCATE => 3 << PLACE_SHIFT,
            code::RELEASE | code::RESIZE => ZEROED | ALIGN,
            code::READ | code::WRITE => 0,
            _ => !7,
        };
        if first & unused != 0 {
            return Err(malformed("bits of an event that nobody knows"));
        }
        let event = match code {
            code::END => return self.end().map(|()| None),
            code::ALLOCATE => {
                let thread = self.thread(first)?;
                let mut align_bytes = 1;
                if first & ALIGN != 0 {
                    let log2 = self.content.number("an alignment")?;
                    let power = u32::try_from(log2).ok().and_then(|log2| 1u64.checked_shl(log2));
                    let power = power.filter(|&power| power > 1);
                    align_bytes = power.ok_or(malformed("an alignment of 1 or beyond 2^63"))?;
                }
                HeapEvent::Allocate {
                    block: self.state.blocks,
                    size_bytes: self.content.number("a block's size")?,
                    align_bytes,
                    zeroed: first & ZEROED != 0,
                    thread,
                }
            }
            code::RESIZE => HeapEvent::Resize {
                thread: self.thread(first)?,
                block: self.block(first)?,
                size_bytes: self.content.number("a block's size")?,
            },
            code::RELEASE => {
                HeapEvent::Release { thread: self.thread(first)?, block: self.block(first)? }
            }
            code::READ | code::WRITE => {
                let len_bytes = match first >> LEN_SHIFT & 7 {
                    log2 @ ..=LEN_LOG2_MAX => 1 << log2,
                    LEN_FOLLOWS => {
                        let len = self.content.number("a length")?;
                        u16::try_from(len).map_err(|_| malformed("a length beyond 65535"))?
                    }
                    _ => return Err(malformed("a length that nobody knows")),
                };
                let block = self.block(first)?;
                let last = self.state.live.get(&block).map_or(0, |held| held.offset_bytes);
                let difference = unzigzag(self.content.number("an offset")?);
                let offset_bytes = last.wrapping_add(difference);
                match code {
                    code::READ => HeapEvent::Read { block, offset_bytes, len_bytes },
                    _ => HeapEvent::Write { block, offset_bytes, len_bytes },
                }
            }
            code::SKIP => {
                HeapEvent::Skip { accesses: self.content.number("a number of accesses")? }
            }
            _ => return Err(malformed("an event that nobody knows")),
        };
        if let Some(what) = self.state.fault(&event) {
            return Err(malformed(what));
        }
        self.state.take(&event);
        Ok(Some(event))
    }

    fn thread(&mut self, first: u8) -> Result<u32, FileError> {
        if first & THREAD == 0 {
            return Ok(self.state.thread);
        }
        let offset = self.content.offset();
        let thread = u32::try_from(self.content.number("a thread")?).ok();
        let what = "a thread that is the last one or beyond 2^32";
        let other = thread.filter(|&thread| thread != self.state.thread);
        other.ok_or(HEAP_FORMAT.malformed(offset, what))
    }

    fn block(&mut self, first: u8) -> Result<u64, FileError> {
        let offset = self.content.offset();
        let mut place = Some(u64::from(first >> PLACE_SHIFT));
        if place == Some(PLACE_FOLLOWS) {
            place = self.content.number("a block")?.checked_add(PLACE_FOLLOWS);
        }
        let what = "a block that was never allocated";
        let block = place.and_then(|place| self.state.block_at(place));
        block.ok_or(HEAP_FORMAT.malformed(offset, what))
    }

    fn end(&mut self) -> Result<(), FileError> {
        let offset = self.content.offset();
        if self.content.number("the number of events")? != self.state.events {
            let what = "not the number of events before it";
            return Err(HEAP_FORMAT.malformed(offset, what));
        }
        let offset = self.content.offset();
        let mut totals = [0; 6];
        for total in &mut totals {
            *total = self.content.number("the totals")?;
        }
        let [reads, writes, elsewhere, failed_calls, unknown_calls, lost_calls] = totals;
        let totals =
            HeapTotals { reads, writes, elsewhere, failed_calls, unknown_calls, lost_calls };
        if !self.state.agrees(&totals) {
            let what = "totals that are not those of the events";
            return Err(HEAP_FORMAT.malformed(offset, what));
        }
        if self.content.version() > 1 {
            self.programs = Some(CommandPrograms::read(&mut self.content)?);
        }
        self.content.end("bytes after the end")?;
        self.totals = Some(totals);
        Ok(())
    }
}

impl<R: Read> Iterator for HeapReader<R> {
    type Item = Result<HeapEvent, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = self.event().transpose();
        self.ended = !matches!(event, Some(Ok(_)));
        event
    }
}
