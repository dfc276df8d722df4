//! Recordings of page events as files.
//!
//! A signature, a version, and one zstd frame: the machine, then a byte or two
//! to most events. Which frame an event names is guessed, because per-CPU lists
//! are stacks and processes give back what they took in order; what is stored
//! is the difference from the guess, and mostly there is none.
//! `docs/formats.md` describes each byte.
//!
//! Reading streams: whatever the file says, memory stays within a few
//! megabytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use swath_arch::{Order, Pfn};

use crate::container::{Content, FileError, FileFormat, check_name, invalid, put_name};
use crate::input::{put_number, unzigzag, zigzag};
use crate::machine::facts::{MachineFacts, check_facts, put_facts, read_facts};
use crate::pages::events::{CPUS_MAX, MigrateType, PageChange, PageEvent, ZoneMax};
use crate::unpack::{Limit, Packer};

/// The format.
pub static PAGE_FORMAT: FileFormat = FileFormat {
    noun: "page-event recording",
    magic: *b"SWPAGE\r\n",
    version: 1,
    oldest: 1,
    limit: Limit::STREAM,
};

/// Encoded events gathered before zstd sees them, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Facts that a recording states before its first event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageHeader {
    /// The machine when the recording began.
    pub facts: MachineFacts,
    /// The file name of the program that ran, without its directory; empty if
    /// it is not printable ASCII.
    pub program: String,
    /// The whole system, or the program with its children alone.
    pub whole_system: bool,
    /// One past the highest processor's number.
    pub cpus: u16,
}

impl PageHeader {
    /// Returns the reason why no file can hold it, if there is one.
    fn fault(&self) -> Option<&'static str> {
        if self.cpus == 0 || self.cpus > CPUS_MAX {
            return Some("a number of processors that is 0 or beyond 4096");
        }
        check_facts(&self.facts).and_then(|()| check_name(self.program.as_bytes())).err()
    }
}

/// The codes of the kinds in the file: bits 0 to 2 of an event's first byte.
mod code {
    pub(crate) const END: u8 = 0;
    pub(crate) const ALLOC: u8 = 1;
    pub(crate) const FREE: u8 = 2;
    pub(crate) const FREE_BATCHED: u8 = 3;
    pub(crate) const DRAIN: u8 = 4;
    pub(crate) const TAKE: u8 = 5;
    pub(crate) const FALLBACK: u8 = 6;
    pub(crate) const RARE: u8 = 7;
    pub(crate) const COUNT: usize = 8;
}

/// Bits of an event's first byte: a processor, attributes, a difference
/// follow; and the time since the event before, all of its bits set if it
/// follows as well.
const CPU: u8 = 1 << 3;
const ATTRIBUTES: u8 = 1 << 4;
const DIFFERENCE: u8 = 1 << 5;
const TIME_SHIFT: u32 = 6;
const TIME_FOLLOWS: u64 = 3;

/// An event as the file has it: code, attributes, first frame. Rare ones have
/// no frame.
type Plain = (u8, u64, Option<u64>);

fn plain(change: PageChange) -> Plain {
    let order = |order: Order| u64::from(order.k());
    let kind = |kind: MigrateType| u64::from(kind.number());
    match change {
        PageChange::Alloc { start, order: o, migrate_type, zone_max, read_ahead } => {
            let asked = (zone_max as u64) << 7 | u64::from(read_ahead) << 9;
            let attributes = order(o) | kind(migrate_type) << 4 | asked;
            (code::ALLOC, attributes, Some(start.raw()))
        }
        PageChange::Free { start, order: o } => (code::FREE, order(o), Some(start.raw())),
        PageChange::FreeBatched { start } => (code::FREE_BATCHED, 0, Some(start.raw())),
        PageChange::Drain { start, order: o, migrate_type } => {
            (code::DRAIN, order(o) | kind(migrate_type) << 4, Some(start.raw()))
        }
        PageChange::Take { start, order: o, migrate_type, per_cpu } => {
            let attributes = order(o) | kind(migrate_type) << 4 | u64::from(per_cpu) << 7;
            (code::TAKE, attributes, Some(start.raw()))
        }
        PageChange::Fallback { start, order: o, fallback_order, wanted, found, claimed } => {
            let types = kind(wanted) << 8 | kind(found) << 11 | u64::from(claimed) << 14;
            (code::FALLBACK, order(o) | order(fallback_order) << 4 | types, Some(start.raw()))
        }
        PageChange::AllocFailed { order: o, migrate_type, zone_max } => {
            let attributes = order(o) | kind(migrate_type) << 4 | (zone_max as u64) << 7;
            (code::RARE, attributes << 1 | 1, None)
        }
        PageChange::Lost { count } => (code::RARE, count << 1, None),
    }
}

/// The inverse of [`plain`], `None` for attributes that mean nothing.
fn change((code, attributes, frame): Plain) -> Option<PageChange> {
    let bits = |low: u32, count: u32| attributes >> low & ((1 << count) - 1);
    let order = |low| Order::new(bits(low, 4) as u8);
    let kind = |low| MigrateType::new(bits(low, 3) as u8);
    let zone = |low| ZoneMax::ALL.get(bits(low, 2) as usize).copied();
    let within = |count: u32| attributes >> count == 0;
    let start = Pfn::new(frame.unwrap_or(0));
    Some(match code {
        code::ALLOC if within(10) => PageChange::Alloc {
            start,
            order: order(0)?,
            migrate_type: kind(4)?,
            zone_max: zone(7)?,
            read_ahead: bits(9, 1) == 1,
        },
        code::FREE if within(4) => PageChange::Free { start, order: order(0)? },
        code::FREE_BATCHED if within(0) => PageChange::FreeBatched { start },
        code::DRAIN if within(7) => {
            PageChange::Drain { start, order: order(0)?, migrate_type: kind(4)? }
        }
        code::TAKE if within(8) => PageChange::Take {
            start,
            order: order(0)?,
            migrate_type: kind(4)?,
            per_cpu: bits(7, 1) == 1,
        },
        code::FALLBACK if within(15) => PageChange::Fallback {
            start,
            order: order(0)?,
            fallback_order: order(4)?,
            wanted: kind(8)?,
            found: kind(11)?,
            claimed: bits(14, 1) == 1,
        },
        code::RARE if attributes & 1 == 0 => PageChange::Lost { count: attributes >> 1 },
        code::RARE if within(10) => {
            PageChange::AllocFailed { order: order(1)?, migrate_type: kind(5)?, zone_max: zone(8)? }
        }
        _ => return None,
    })
}

/// Frames that the tables of [`Guess`] tell apart: those of 256 MiB.
const SLOTS: usize = 1 << 16;

/// Lists of one processor: 16 orders of 8 migrate types.
const LISTS: usize = 128;

const fn slot(frame: u64) -> usize {
    frame as usize % SLOTS
}

/// Last events of one processor.
#[derive(Clone)]
struct Cpu {
    /// The head of each per-CPU list, as far as the events tell.
    top: [u64; LISTS],
    /// The first frame of the last event of each code.
    last: [u64; code::COUNT],
    /// The code of the last event.
    code: u8,
}

/// Guess at the frame of the next event; reader and writer hold the
/// same. The tables are indexed by the low bits of a frame number, so frames
/// 256 MiB apart share a place, which costs bytes and nothing else.
struct Guess {
    cpus: Vec<Option<Box<Cpu>>>,
    /// The frame beneath this one in its per-CPU list.
    below: Box<[u64]>,
    /// The frame above it.
    above: Box<[u64]>,
    /// Frame that the processor allocated after it.
    next: Box<[u64]>,
    /// The migrate type that it was last allocated or taken as.
    owner: Box<[u8]>,
    /// The last event's processor, and the attributes of each code.
    cpu: u16,
    attributes: [u64; code::COUNT],
}

impl Guess {
    fn new(cpus: u16) -> Self {
        let table = || vec![0; SLOTS].into_boxed_slice();
        Self {
            cpus: vec![None; cpus.into()],
            below: table(),
            above: table(),
            next: table(),
            owner: vec![0; SLOTS].into_boxed_slice(),
            cpu: 0,
            attributes: [0; code::COUNT],
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut Cpu {
        let new = || Box::new(Cpu { top: [0; LISTS], last: [0; code::COUNT], code: 0 });
        self.cpus[usize::from(cpu)].get_or_insert_with(new)
    }

    /// The list of a block of this order and type.
    const fn list(attributes: u64) -> usize {
        attributes as usize % LISTS
    }

    /// The frame that an event of this code and these attributes names.
    fn of(&mut self, cpu: u16, code: u8, attributes: u64) -> u64 {
        let state = self.cpu(cpu);
        let last = state.last[usize::from(code)];
        match code {
            code::ALLOC => state.top[Self::list(attributes)],
            code::FREE => self.next[slot(last)],
            code::FREE_BATCHED | code::DRAIN => self.above[slot(last)],
            code::TAKE if state.code == code::FALLBACK => state.last[usize::from(code::FALLBACK)],
            code::TAKE => last.wrapping_add(1 << (attributes & 15)),
            _ => last,
        }
    }

    fn learn(&mut self, cpu: u16, code: u8, attributes: u64, frame: u64) {
        let place = slot(frame);
        let owner = u64::from(self.owner[place]);
        let state = self.cpu(cpu);
        let (before, last) = (state.code, state.last[usize::from(code)]);
        state.code = code;
        state.last[usize::from(code)] = frame;
        match code {
            code::ALLOC => {
                let beneath = self.below[place];
                self.cpu(cpu).top[Self::list(attributes)] = beneath;
                self.next[slot(last)] = frame;
                self.owner[place] = (attributes >> 4 & 7) as u8;
            }
            code::FREE => {
                let top = &mut state.top[Self::list(attributes & 15 | owner << 4)];
                let beneath = std::mem::replace(top, frame);
                self.below[place] = beneath;
                self.above[slot(beneath)] = frame;
            }
            code::TAKE => {
                // A refill puts each block behind the one before.
                if before == code::TAKE {
                    self.below[slot(last)] = frame;
                    self.above[place] = last;
                } else {
                    state.top[Self::list(attributes)] = frame;
                }
                self.owner[place] = (attributes >> 4 & 7) as u8;
            }
            _ => {}
        }
    }
}

/// Writes a recording.
///
/// Nothing but [`finish`](Self::finish) makes the file whole: without it a
/// reader reports it as cut short.
pub struct PageWriter<W: Write> {
    packer: Packer<W>,
    chunk: Vec<u8>,
    guess: Guess,
    cpus: u16,
    time_us: u64,
    count: u64,
}

impl<W: Write> PageWriter<W> {
    /// Starts a recording. `level` is zstd's, 1 (fast) to 19 (small).
    ///
    /// # Errors
    /// Those of `to`, a level that zstd does not know, and
    /// [`io::ErrorKind::InvalidInput`] for a head that the format cannot hold.
    pub fn new(to: W, head: &PageHeader, level: i32) -> io::Result<Self> {
        if let Some(what) = head.fault() {
            return Err(invalid(what));
        }
        let packer = PAGE_FORMAT.begin(to, level)?;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 64);
        put_facts(&mut chunk, &head.facts);
        put_name(&mut chunk, &head.program);
        put_number(&mut chunk, head.whole_system.into());
        put_number(&mut chunk, head.cpus.into());
        let guess = Guess::new(head.cpus);
        Ok(Self { packer, chunk, guess, cpus: head.cpus, time_us: 0, count: 0 })
    }

    /// Adds an event. O(1).
    ///
    /// # Errors
    /// Those of the writer below; [`io::ErrorKind::InvalidInput`] for an event
    /// before the one before, of a processor that the head does not count, or
    /// that no kernel reports, which is not written.
    pub fn push(&mut self, event: PageEvent) -> io::Result<()> {
        let PageEvent { time_us, cpu, change } = event;
        let Some(passed) = time_us.checked_sub(self.time_us) else {
            return Err(invalid("an event before the one before it"));
        };
        if cpu >= self.cpus {
            return Err(invalid("a processor that the head does not count"));
        }
        if let Some(what) = change.fault() {
            return Err(invalid(what));
        }
        let (code, attributes, frame) = plain(change);
        let kept = &mut self.guess.attributes[usize::from(code)];
        let mut first = code | (passed.min(TIME_FOLLOWS) as u8) << TIME_SHIFT;
        if cpu != self.guess.cpu {
            first |= CPU;
        }
        if attributes != *kept {
            first |= ATTRIBUTES;
            *kept = attributes;
        }
        let difference =
            frame.map_or(0, |frame| frame.wrapping_sub(self.guess.of(cpu, code, attributes)));
        if difference != 0 {
            first |= DIFFERENCE;
        }
        self.chunk.push(first);
        if passed >= TIME_FOLLOWS {
            put_number(&mut self.chunk, passed - TIME_FOLLOWS);
        }
        if first & CPU != 0 {
            put_number(&mut self.chunk, cpu.into());
        }
        if first & ATTRIBUTES != 0 {
            put_number(&mut self.chunk, attributes);
        }
        if first & DIFFERENCE != 0 {
            put_number(&mut self.chunk, zigzag(difference));
        }
        self.time_us = time_us;
        self.guess.cpu = cpu;
        if let Some(frame) = frame {
            self.guess.learn(cpu, code, attributes, frame);
        }
        self.count += 1;
        if self.chunk.len() >= CHUNK_BYTES {
            self.packer.push(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }

    /// Events so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Ends the recording with what each processor lost, and gives the writer
    /// back.
    ///
    /// # Errors
    /// Those of the writer; [`io::ErrorKind::InvalidInput`] if `lost` has
    /// another length than the head's processors, or its sum more than 64 bits.
    pub fn finish(mut self, lost: &[u64]) -> io::Result<W> {
        if lost.len() != usize::from(self.cpus) {
            return Err(invalid("not a count of lost events for each processor"));
        }
        if lost.iter().try_fold(0u64, |sum, &lost| sum.checked_add(lost)).is_none() {
            return Err(invalid("2^64 lost events or more"));
        }
        self.chunk.push(code::END);
        put_number(&mut self.chunk, self.count);
        lost.iter().for_each(|&lost| put_number(&mut self.chunk, lost));
        self.packer.push(&self.chunk)?;
        self.packer.finish()
    }
}

/// Reads a recording event by event; after an error or the end there is
/// nothing more.
pub struct PageReader<R: Read> {
    content: Content<R>,
    head: PageHeader,
    guess: Guess,
    time_us: u64,
    count: u64,
    ended: bool,
    lost: Vec<u64>,
}

impl PageReader<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`new`](PageReader::new), and if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::new(File::open(path)?)
    }
}

impl<R: Read> PageReader<R> {
    /// Reads what stands before the events.
    ///
    /// # Errors
    /// A [`FileError`] that names the byte.
    pub fn new(from: R) -> Result<Self, FileError> {
        let mut content = Content::open(from, &PAGE_FORMAT)?;
        let facts = read_facts(&mut content)?;
        let program = content.name("the program's name")?;
        let offset = content.offset();
        let malformed = |offset, what| PAGE_FORMAT.malformed(offset, what);
        let whole_system = match content.number("whether it is the whole system")? {
            0 => false,
            1 => true,
            _ => return Err(malformed(offset, "neither a program nor the whole system")),
        };
        let offset = content.offset();
        let cpus = content.number("the number of processors")?;
        let cpus = u16::try_from(cpus).unwrap_or(u16::MAX);
        let head = PageHeader { facts, program, whole_system, cpus };
        if let Some(what) = head.fault() {
            return Err(malformed(offset, what));
        }
        let guess = Guess::new(cpus);
        let lost = Vec::new();
        Ok(Self { content, head, guess, time_us: 0, count: 0, ended: false, lost })
    }

    /// Returns the facts that stand before the events.
    pub fn head(&self) -> &PageHeader {
        &self.head
    }

    /// The events lost by each processor, whose sum is below 2^64; empty before the last
    /// event is read.
    pub fn lost(&self) -> &[u64] {
        &self.lost
    }

    fn event(&mut self) -> Result<Option<PageEvent>, FileError> {
        let offset = self.content.offset();
        let malformed = |what| PAGE_FORMAT.malformed(offset, what);
        let first = self.content.byte("an event")?;
        let code = first & 7;
        if code == code::END {
            if first != 0 {
                return Err(malformed("an end with something to it"));
            }
            return self.end().map(|()| None);
        }
        let mut passed = u64::from(first >> TIME_SHIFT);
        if passed == TIME_FOLLOWS {
            let more = self.content.number("a time")?;
            passed = more.checked_add(TIME_FOLLOWS).ok_or(malformed("a time beyond 2^64"))?;
        }
        let time_us = self.time_us.checked_add(passed);
        let time_us = time_us.ok_or(malformed("a time beyond 2^64"))?;
        let mut cpu = self.guess.cpu;
        if first & CPU != 0 {
            let number = self.content.number("a processor")?;
            let other = u16::try_from(number).ok();
            let other = other.filter(|&other| other != cpu && other < self.head.cpus);
            cpu = other.ok_or(malformed("a processor that is the last one or not counted"))?;
        }
        let mut attributes = self.guess.attributes[usize::from(code)];
        if first & ATTRIBUTES != 0 {
            let other = self.content.number("an event's attributes")?;
            if other == attributes {
                return Err(malformed("attributes that need not be there"));
            }
            attributes = other;
        }
        let mut frame = None;
        if code != code::RARE {
            let mut difference = 0;
            if first & DIFFERENCE != 0 {
                difference = unzigzag(self.content.number("a frame")?);
                if difference == 0 {
                    return Err(malformed("a difference that need not be there"));
                }
            }
            frame = Some(self.guess.of(cpu, code, attributes).wrapping_add(difference));
        } else if first & DIFFERENCE != 0 {
            return Err(malformed("a difference of an event without a frame"));
        }
        let change = change((code, attributes, frame));
        let change = change.ok_or(malformed("attributes that mean nothing"))?;
        if let Some(what) = change.fault() {
            return Err(malformed(what));
        }
        self.guess.attributes[usize::from(code)] = attributes;
        self.guess.cpu = cpu;
        if let Some(frame) = frame {
            self.guess.learn(cpu, code, attributes, frame);
        }
        self.time_us = time_us;
        self.count += 1;
        Ok(Some(PageEvent { time_us, cpu, change }))
    }

    fn end(&mut self) -> Result<(), FileError> {
        let offset = self.content.offset();
        if self.content.number("the number of events")? != self.count {
            let what = "not the number of events before it";
            return Err(PAGE_FORMAT.malformed(offset, what));
        }
        let (mut lost, mut sum) = (Vec::new(), 0u64);
        for _ in 0..self.head.cpus {
            let offset = self.content.offset();
            let count = self.content.number("a processor's lost events")?;
            let more = sum.checked_add(count);
            sum = more.ok_or(PAGE_FORMAT.malformed(offset, "2^64 lost events or more"))?;
            lost.push(count);
        }
        self.content.end("bytes after the end")?;
        self.lost = lost;
        Ok(())
    }
}

impl<R: Read> Iterator for PageReader<R> {
    type Item = Result<PageEvent, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = self.event().transpose();
        self.ended = !matches!(event, Some(Ok(_)));
        event
    }
}
