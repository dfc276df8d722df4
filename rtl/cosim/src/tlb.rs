//! TLBs beside the model: lookups, fills and drops at random, hit by hit.

use std::ffi::c_void;

use swath_arch::testing::Random;
use swath_arch::{Attributes, Order, PageRange, Pfn, Vpn};
use swath_hw::{EntryKind, Geometry, Tlb, TlbFill};

/// The answer of a lookup.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Hit {
    pfn: u64,
    hit: bool,
    attributes: u8,
}

/// What is filled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Fill {
    vpn: u64,
    pfn: u64,
    before: u64,
    after: u64,
    mask: u64,
    attributes: u8,
}

macro_rules! shims {
    ($($form:ident: $new:ident $delete:ident $lookup:ident $fill:ident $drop:ident,)*) => {
        unsafe extern "C" {
            $(
                fn $new() -> *mut c_void;
                fn $delete(unit: *mut c_void);
                fn $lookup(unit: *mut c_void, vpn: u64, out: *mut Hit);
                fn $fill(unit: *mut c_void, fill: *const Fill) -> u64;
                fn $drop(unit: *mut c_void, vpn: u64, all: u8);
            )*
        }

        impl Form {
            const fn shim(self) -> Shim {
                match self {
                    $(Self::$form => Shim {
                        new: $new, delete: $delete, lookup: $lookup, fill: $fill, drop: $drop,
                    },)*
                }
            }
        }
    };
}

shims! {
    Page: tlb_page_new tlb_page_delete tlb_page_lookup tlb_page_fill tlb_page_drop,
    Aligned: tlb_aligned_new tlb_aligned_delete tlb_aligned_lookup tlb_aligned_fill tlb_aligned_drop,
    Run: tlb_run_new tlb_run_delete tlb_run_lookup tlb_run_fill tlb_run_drop,
    Leaf: tlb_leaf_new tlb_leaf_delete tlb_leaf_lookup tlb_leaf_fill tlb_leaf_drop,
}

/// The functions of one form.
#[derive(Clone, Copy)]
struct Shim {
    new: unsafe extern "C" fn() -> *mut c_void,
    delete: unsafe extern "C" fn(*mut c_void),
    lookup: unsafe extern "C" fn(*mut c_void, u64, *mut Hit),
    fill: unsafe extern "C" fn(*mut c_void, *const Fill) -> u64,
    drop: unsafe extern "C" fn(*mut c_void, u64, u8),
}

/// The runs that entries map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One page.
    Page,
    /// Aligned powers of two.
    Aligned,
    /// Any length, anywhere.
    Run,
    /// Any length, within an aligned 512 pages.
    Leaf,
}

/// All forms.
pub const FORMS: [Form; 4] = [Form::Page, Form::Aligned, Form::Run, Form::Leaf];

/// Entries, as `tlb.sv` has them.
const ENTRIES: u32 = 32;

/// Bits of a page number and of a frame's.
const BITS: u32 = 40;

/// A simulated TLB.
struct Unit {
    handle: *mut c_void,
    shim: Shim,
}

impl Unit {
    fn new(form: Form) -> Self {
        let shim = form.shim();
        // SAFETY: the shim creates an object of its own and asks for nothing.
        let handle = unsafe { (shim.new)() };
        Self { handle, shim }
    }

    fn lookup(&mut self, vpn: u64) -> Hit {
        let mut hit = Hit::default();
        // SAFETY: `handle` is of this shim, as `new` set both; `Hit` is laid out as the shim's, which writes 0 or 1 where a
        // `bool` stands.
        unsafe { (self.shim.lookup)(self.handle, vpn, &raw mut hit) }
        hit
    }

    fn fill(&mut self, fill: &Fill) -> u64 {
        // SAFETY: as in `lookup`; the shim reads the fill and keeps nothing of it.
        unsafe { (self.shim.fill)(self.handle, fill) }
    }

    fn drop_page(&mut self, vpn: u64) {
        // SAFETY: as in `lookup`.
        unsafe { (self.shim.drop)(self.handle, vpn, 0) }
    }

    fn drop_all(&mut self) {
        // SAFETY: as in `lookup`.
        unsafe { (self.shim.drop)(self.handle, 0, 1) }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: `handle` is of this shim, and nobody uses it after this.
        unsafe { (self.shim.delete)(self.handle) }
    }
}

/// The counts of a run.
pub struct Tally {
    pub hits: u64,
    pub fills: u64,
    pub overlaps: u64,
    pub cycles: u64,
}

/// The bits of an entry's attributes.
fn attributes_of(bits: u8) -> Attributes {
    Attributes {
        writable: bits & 1 != 0,
        user: bits & 2 != 0,
        executable: bits & 4 != 0,
        global: bits & 8 != 0,
        accessed: true,
        ..Attributes::default()
    }
}

/// The run around a page: its pages before and after, the ones of an aligned run's mask.
fn run_of(form: Form, page: u64, frame: u64, random: &mut Random) -> (u64, u64, u64) {
    let limit = match form {
        Form::Page => return (0, 0, 0),
        Form::Aligned => {
            // As large as both numbers are aligned alike.
            let alike = (page ^ frame).trailing_zeros().min(12);
            let mask = (1 << random.below(u64::from(alike) + 1)) - 1;
            return (page & mask, !page & mask, mask);
        }
        Form::Run => (page, (1 << BITS) - 1 - page),
        Form::Leaf => (page & 511, 511 - (page & 511)),
    };
    let longest = 1 << random.below(10);
    let before = random.below(longest).min(limit.0).min(frame);
    let after = random.below(longest).min(limit.1).min((1 << BITS) - 1 - frame);
    (before, after, 0)
}

/// Looks so many pages up in hardware and model, and fills what is missing: mostly from tables that agree with one
/// another, at times with runs that contradict older entries.
///
/// # Panics
/// They differ.
pub fn run(form: Form, accesses: u64, seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let mut unit = Unit::new(form);
    let geometry = Geometry::fully_associative(ENTRIES);
    let mut model = Tlb::new(geometry, Order::BASE).expect("a form");
    let mut tally = Tally { hits: 0, fills: 0, overlaps: 0, cycles: 0 };
    // Pages at both ends of all and in the middle, so near that runs meet.
    let bases = [0, (1 << BITS) - 4096, 0x12_3456_7000];
    let mut recent = [0; 40];
    for access in 0..accesses {
        let page = match random.below(8) {
            0 => random.below(1 << BITS),
            // One of the last, of which there are a few more than entries.
            1..5 => recent[random.below(recent.len() as u64) as usize],
            _ => bases[random.below(3) as usize] + random.below(4096),
        };
        recent[(access % recent.len() as u64) as usize] = page;
        let at = || format!("{form:?}, seed {seed}, access {access}, page {page:#x}");
        let found = unit.lookup(page);
        tally.cycles += 1;
        let expected = model.lookup(Vpn::new(page));
        assert_eq!(found.hit, expected.is_some(), "{}: hit", at());
        if let Some(expected) = expected {
            assert_eq!(found.pfn, expected.frame.raw(), "{}: frame", at());
            assert_eq!(attributes_of(found.attributes), expected.attributes, "{}", at());
            tally.hits += 1;
        } else if random.below(64) > 0 {
            let frame = match form {
                // Mostly aligned like the page.
                Form::Aligned => {
                    let low = random.below(13);
                    random.below(1 << (BITS - 13)) << 13 | page & ((1 << low) - 1)
                }
                _ => random.below(1 << BITS),
            };
            let (before, after, mask) = run_of(form, page, frame, &mut random);
            let bits = random.below(16) as u8;
            let fill = Fill { vpn: page, pfn: frame, before, after, mask, attributes: bits };
            let pages = PageRange::new(Vpn::new(page - before), before + after + 1);
            let first = Pfn::new(frame - before);
            let entry =
                TlbFill::new(EntryKind::Regular, Vpn::new(page), pages, first, attributes_of(bits))
                    .expect("numbers of 40 bits");
            let stats = model.stats();
            model.fill(&entry);
            let cycles = unit.fill(&fill);
            let promised = if matches!(form, Form::Run | Form::Leaf) { 5 } else { 2 };
            assert_eq!(cycles, promised, "{}: cycles of a fill", at());
            tally.cycles += cycles;
            tally.fills += 1;
            let now = model.stats();
            tally.overlaps += u64::from(
                now.trimmed_fills != stats.trimmed_fills || now.displaced != stats.displaced,
            );
        }
        match random.below(4000) {
            0 => {
                model.invalidate_all();
                unit.drop_all();
                tally.cycles += 1;
            }
            1..60 => {
                let page = bases[random.below(3) as usize] + random.below(4096);
                model.invalidate_page(Vpn::new(page));
                unit.drop_page(page);
                tally.cycles += 1;
            }
            _ => {}
        }
    }
    tally
}
