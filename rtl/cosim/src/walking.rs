//! TLBs of runs with their walker beside the models of both, over tables of any content: each read, each answer, and the
//! cycles of each.

use std::ffi::c_void;

use swath_arch::testing::Random;
use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, MemoryKind, Order, PageRange, Pfn,
    PhysAddr, PhysMemory, Regime, SliceMemory, Vpn,
};
use swath_hw::{EntryKind, Geometry, Tlb, TlbFill, TranslationFault, Walk, WalkStep};

use crate::port::Port;
use crate::unit::PortOut;

/// All wires into the unit in a cycle.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct In {
    root: u64,
    vpn: u64,
    drop_vpn: u64,
    data: u64,
    valid: bool,
    drop: bool,
    drop_all: bool,
    ready: bool,
    rsp_valid: bool,
    rsp_error: bool,
}

/// All wires out of the unit in the same cycle.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Out {
    addr: u64,
    pfn: u64,
    req_valid: bool,
    taken: bool,
    answered: bool,
    fault: u8,
    level: u8,
    attributes: u8,
}

unsafe extern "C" {
    fn walking_any_new() -> *mut c_void;
    fn walking_any_delete(unit: *mut c_void);
    fn walking_any_step(unit: *mut c_void, input: *const In, output: *mut Out);
    fn walking_leaf_new() -> *mut c_void;
    fn walking_leaf_delete(unit: *mut c_void);
    fn walking_leaf_step(unit: *mut c_void, input: *const In, output: *mut Out);
}

/// The places of the runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    Anywhere,
    WithinATable,
}

/// A simulated unit.
struct Unit {
    handle: *mut c_void,
    runs: Runs,
}

impl Unit {
    fn new(runs: Runs) -> Self {
        // SAFETY: the shim creates an object of its own and asks for nothing.
        let handle = unsafe {
            match runs {
                Runs::Anywhere => walking_any_new(),
                Runs::WithinATable => walking_leaf_new(),
            }
        };
        Self { handle, runs }
    }

    fn step(&mut self, input: &In) -> Out {
        let mut out = Out::default();
        // SAFETY: `handle` is of this shim, as `new` set both; the structures are laid out as the shim's, which writes 0 or
        // 1 where a `bool` stands.
        unsafe {
            match self.runs {
                Runs::Anywhere => walking_any_step(self.handle, input, &raw mut out),
                Runs::WithinATable => walking_leaf_step(self.handle, input, &raw mut out),
            }
        }
        out
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: `handle` is of this shim, and nobody uses it after this.
        unsafe {
            match self.runs {
                Runs::Anywhere => walking_any_delete(self.handle),
                Runs::WithinATable => walking_leaf_delete(self.handle),
            }
        }
    }
}

/// Frames of tables; every one may stand at any level.
const TABLES: u64 = 48;

/// Entries, as the designs have them.
const ENTRIES: u32 = 32;

/// Pages of a leaf table.
const LEAF: u64 = 512;

/// The counts of a run.
#[derive(Default)]
pub struct Tally {
    pub hits: u64,
    pub filled: u64,
    pub faults: [u64; 3],
    pub cycles: u64,
}

/// A word of a table: mostly one that leads on, to a table that is there or to a frame; the rest at random.
fn word(random: &mut Random) -> u64 {
    let frame = match random.below(16) {
        0 => random.below(1 << 36),
        // In its place, for blocks and for descriptors that are joined.
        1 => random.below(1 << 18) << 18,
        _ => random.below(TABLES),
    };
    let others = random.word() & !0xffff_ffff_f003;
    // Joined ones are few, and so are those where nothing is mapped.
    let others = if random.one_in(8) { others } else { others & !(1 << 52) };
    let kind = match random.below(32) {
        0 => 0b00,
        1 => 0b10,
        // A block, or nothing that there is.
        2..5 => 0b01,
        _ => 0b11,
    };
    others | frame << 12 | kind
}

/// The bits of an entry's attributes.
fn bits_of(attributes: Attributes) -> u8 {
    u8::from(attributes.writable)
        | u8::from(attributes.user) << 1
        | u8::from(attributes.executable) << 2
        | u8::from(attributes.global) << 3
        | u8::from(attributes.accessed) << 4
        | u8::from(attributes.memory == MemoryKind::Device) << 5
}

/// What the run of a page is, to the hardware.
fn cut(runs: Runs, page: u64, (pages, frames): (PageRange, Extent)) -> (PageRange, Pfn) {
    if runs == Runs::Anywhere {
        return (pages, frames.start);
    }
    let start = pages.start.raw().max(page & !(LEAF - 1));
    let end = (pages.start.raw() + pages.count).min((page | (LEAF - 1)) + 1);
    (PageRange::new(Vpn::new(start), end - start), frames.start + (start - pages.start.raw()))
}

/// Asks for so many pages, with a memory that answers after `latency` cycles, and at times later if it `stalls`.
///
/// # Panics
/// Hardware and model differ.
pub fn run(runs: Runs, latency: u64, stalls: bool, accesses: u64, seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let mut words: Vec<u64> = (0..TABLES * 512).map(|_| word(&mut random)).collect();
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let coalescing = Coalescing::Pcad(ContiguityField::Descriptor);
    let mut unit = Unit::new(runs);
    let mut model = Tlb::new(Geometry::fully_associative(ENTRIES), Order::BASE).expect("a form");
    let (mut port, mut now, mut tally) = (Port::default(), 0, Tally::default());
    let mut recent = [0; 24];
    let root = random.below(TABLES);
    for access in 0..accesses {
        let page = match random.below(8) {
            0 => random.below(1 << 36),
            1..6 => recent[random.index(recent.len())] ^ random.below(8),
            // At the ends of the addresses, where runs are cut.
            6 => ((1 << 36) - 1 - random.below(20)) * random.below(2) + random.below(20),
            _ => recent[random.index(recent.len())] ^ random.below(1 << 12),
        } & ((1 << 36) - 1);
        recent[access as usize % recent.len()] = page;
        let at = || format!("{runs:?}, seed {seed}, access {access}, page {page:#x}");

        // The model: its answer, its reads.
        let regime = Regime { format: Format::ArmV8, root: Pfn::new(root).address(), coalescing };
        let (mut reads, mut fault) = (Vec::new(), None);
        let known = model.lookup(Vpn::new(page));
        let is_hit = known.is_some();
        let expected = known.map(|hit| (hit.frame, hit.attributes)).or_else(|| {
            let mut walk = Walk::new(&regime, Vpn::new(page)).expect("36 bits");
            loop {
                reads.push(walk.next_read().raw());
                match walk.step(&memory) {
                    Ok(WalkStep::Read) => {}
                    Ok(WalkStep::Done(found)) => {
                        let block = found.block(Format::ArmV8, Vpn::new(page));
                        let (pages, first) = cut(runs, page, block);
                        let fill = TlbFill::new(
                            EntryKind::Regular,
                            Vpn::new(page),
                            pages,
                            first,
                            found.attributes,
                        );
                        model.fill(&fill.expect("numbers of 36 bits"));
                        return Some((found.frame, found.attributes));
                    }
                    Err(why) => {
                        fault = Some(why);
                        return None;
                    }
                }
            }
        });

        // The hardware: asked until it answers.
        let began = now;
        let mut asked = Vec::new();
        let out = loop {
            let wires = port.offer(now, stalls.then_some(&mut random));
            let out = unit.step(&In {
                root,
                vpn: page,
                valid: true,
                data: wires.data,
                ready: wires.ready,
                rsp_valid: wires.valid,
                rsp_error: wires.error,
                ..In::default()
            });
            let wanted = PortOut {
                addr: out.addr,
                valid: out.req_valid,
                taken: out.taken,
                ..PortOut::default()
            };
            if let Some(addr) = port.answer(&wanted) {
                asked.push(addr);
                let late = if stalls { random.below(4) } else { 0 };
                port.serve(now + latency + late, memory.read_u64(PhysAddr::new(addr)));
            }
            now += 1;
            assert!(now - began < 1000, "{}: no answer", at());
            if out.answered {
                break out;
            }
        };
        assert_eq!(asked, reads, "{}: reads", at());
        let code = match fault {
            None => 0,
            Some(TranslationFault::Translation { level, .. }) => check_level(1, level, &out, &at),
            Some(TranslationFault::Reserved { level, .. }) => check_level(2, level, &out, &at),
            Some(TranslationFault::Bus { level, .. }) => check_level(3, level, &out, &at),
            Some(other) => panic!("{}: {other}", at()),
        };
        assert_eq!(out.fault, code, "{}: fault", at());
        if let Some((frame, attributes)) = expected {
            assert_eq!(out.pfn, frame.raw(), "{}: frame", at());
            assert_eq!(out.attributes, bits_of(attributes), "{}: attributes", at());
            if is_hit { tally.hits += 1 } else { tally.filled += 1 }
        } else {
            tally.faults[usize::from(code) - 1] += 1;
        }
        if !stalls {
            // A hit in its cycle. A fault after its reads. A page that was walked for is filled in five cycles and hits.
            let walk = 1 + latency * reads.len() as u64;
            let promised = match (is_hit, code) {
                (true, _) => 1,
                (false, 0) => walk + 5,
                (false, _) => walk,
            };
            assert_eq!(now - began, promised, "{}: cycles", at());
        }
        tally.cycles += now - began;
        if random.one_in(100) {
            let all = random.one_in(8);
            let dropped = recent[random.index(recent.len())];
            let (drop, drop_all) = (!all, all);
            unit.step(&In {
                root,
                drop,
                drop_all,
                drop_vpn: dropped,
                ready: true,
                ..In::default()
            });
            now += 1;
            if all { model.invalidate_all() } else { model.invalidate_page(Vpn::new(dropped)) }
        }
    }
    tally
}

fn check_level(code: u8, level: u8, out: &Out, at: &dyn Fn() -> String) -> u8 {
    assert_eq!(out.level, level, "{}: level of the fault", at());
    code
}
