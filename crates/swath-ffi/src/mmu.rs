//! The hardware that translates: TLBs and a walker, for simulators.

use swath_arch::{PhysAddr, Regime, VirtAddr, Vpn};
use swath_hw::{
    Geometry, Hierarchy, HierarchyConfig, Mmu, MmuConfigError, Replacement, Translate,
    TranslationFault, TranslationStats, WalkOrder,
};

use crate::object::{Opaque, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};
use crate::space::{Bus, coalescing, format, pages, swath_bus, swath_coalescing};

/// A memory management unit: a TLB or two, and a walker.
pub struct swath_mmu {
    _private: [u8; 0],
}

/// The units that C can have.
#[allow(clippy::large_enum_variant, reason = "there is one of it, where it was made")]
pub(crate) enum AnyMmu {
    One(Mmu),
    Two(Hierarchy),
}

/// Does the same to either.
macro_rules! either {
    ($unit:expr, $it:ident => $does:expr) => {
        match $unit {
            AnyMmu::One($it) => $does,
            AnyMmu::Two($it) => $does,
        }
    };
}

impl Opaque for swath_mmu {
    type Inner = AnyMmu;
    const TAG: u64 = u64::from_le_bytes(*b"swathmmu");
}

/// Choice of the entry that gives way in a TLB.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_replacement {
    /// The one that was used least recently.
    SWATH_REPLACE_LRU = 0,
    /// The one that came first.
    SWATH_REPLACE_FIFO = 1,
    /// Any, by a generator that always begins alike.
    SWATH_REPLACE_RANDOM = 2,
}

/// Form of a TLB.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_tlb_form {
    /// Sets: a power of two.
    pub sets: u32,
    /// Ways of each.
    pub ways: u32,
    /// log2 of the pages that share a set; a coalesced entry is cut to them.
    pub index_shift: u32,
}

/// Configuration of a unit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_mmu_config {
    /// A `swath_format`.
    pub format: u32,
    /// The physical address of the root table.
    pub root: u64,
    /// The contiguity that its tables state.
    pub coalescing: swath_coalescing,
    /// The first TLB.
    pub first: swath_tlb_form,
    /// The second; without sets there is none.
    pub second: swath_tlb_form,
    /// Cycles of a lookup in the second, 1 and more; without effect if there is none.
    pub second_cycles: u32,
    /// Entries of a page-walk cache, 0 for none; only behind two TLBs.
    pub walk_cache_entries: u32,
    /// A `swath_replacement`.
    pub replacement: u32,
    /// 1 if an anchor is looked at before the page itself.
    pub anchor_first: u32,
}

/// Translation of an address.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_translated {
    /// The physical address.
    pub addr: u64,
    /// 1 if a TLB had it.
    pub is_hit: u32,
    /// Cycles that the lookup took beyond the first TLB's.
    pub lookup_cycles: u32,
    /// Reads of the walk: descriptors, or the line of the last one.
    pub reads: u32,
}

/// Counters of a unit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_mmu_stats {
    /// Lookups in the first TLB.
    pub first_accesses: u64,
    /// Those that it did not answer.
    pub first_misses: u64,
    /// Lookups in the second TLB.
    pub second_accesses: u64,
    /// Those that it did not answer.
    pub second_misses: u64,
    /// Walks, those to anchors included.
    pub walks: u64,
    /// Descriptors that they read.
    pub reads: u64,
    /// Walks that found no page.
    pub faults: u64,
    /// Reads that the page-walk cache saved.
    pub saved_reads: u64,
}

impl From<MmuConfigError> for swath_result {
    fn from(error: MmuConfigError) -> Self {
        match error {
            MmuConfigError::Geometry(_) => Self::new(SWATH_ARGUMENT, 0),
            MmuConfigError::Root { root } => Self::new(SWATH_MISALIGNED, root.raw()),
            MmuConfigError::Bits { bits } => Self::new(SWATH_ARGUMENT, bits.into()),
            MmuConfigError::Distance { distance } => Self::new(SWATH_ARGUMENT, distance.k().into()),
            MmuConfigError::WalkCache { entries } => Self::new(SWATH_ARGUMENT, entries.into()),
        }
    }
}

fn form(form: swath_tlb_form) -> Outcome<Geometry> {
    let swath_tlb_form { sets, ways, index_shift } = form;
    if !sets.is_power_of_two() {
        return fail(SWATH_ARGUMENT, sets.into());
    }
    Ok(Geometry { sets, ways, index_shift })
}

fn unit(config: swath_mmu_config) -> Outcome<AnyMmu> {
    let root = PhysAddr::new(config.root);
    let regime =
        Regime { format: format(config.format)?, root, coalescing: coalescing(config.coalescing)? };
    let replacement = match config.replacement {
        0 => Replacement::Lru,
        1 => Replacement::Fifo,
        2 => Replacement::Random,
        other => return fail(SWATH_ARGUMENT, other.into()),
    };
    let order = match config.anchor_first {
        0 => WalkOrder::RegularFirst,
        1 => WalkOrder::AnchorFirst,
        other => return fail(SWATH_ARGUMENT, other.into()),
    };
    let first = form(config.first)?;
    if config.second.sets == 0 {
        if config.walk_cache_entries != 0 {
            return fail(SWATH_ARGUMENT, config.walk_cache_entries.into());
        }
        return Ok(AnyMmu::One(Mmu::new(regime, first, order)?.replacing(replacement)));
    }
    if config.second_cycles == 0 {
        return fail(SWATH_ARGUMENT, 0);
    }
    let config = HierarchyConfig {
        l1: first.into(),
        l2: form(config.second)?.into(),
        l2_cycles: config.second_cycles,
        walk_cache_entries: config.walk_cache_entries,
        order,
    };
    Ok(AnyMmu::Two(Hierarchy::new(regime, &config)?.replacing(replacement)))
}

/// Makes a unit, on the C library's heap.
///
/// Errors: `SWATH_ARGUMENT` with the number that cannot be, 0 for a form of a TLB; `SWATH_MISALIGNED`
/// with the root; `SWATH_NULL`.
///
/// # Safety
/// `config` is null or can be read; `mmu` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_mmu_create(
    config: *const swath_mmu_config,
    mmu: *mut *mut swath_mmu,
) -> swath_result {
    let create = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let config = unsafe { config.as_ref() }.ok_or(swath_result::new(SWATH_NULL, 0))?;
        // SAFETY: as the caller says.
        unsafe { swath_mmu::create_on_heap(mmu, || unit(*config)) }
    };
    swath_result::of(create())
}

/// Ends a unit.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `mmu` is null or an object of this library that has not been ended; nobody uses it from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_mmu_destroy(mmu: *mut swath_mmu) -> swath_result {
    // SAFETY: as the caller says.
    swath_result::of(unsafe { swath_mmu::end(mmu) })
}

fn access<T: Translate>(
    unit: &mut T,
    addr: VirtAddr,
    memory: &Bus,
) -> Result<swath_translated, TranslationFault> {
    let (hit, lookup_cycles) = unit.lookup(addr);
    if let Some(hit) = hit {
        return Ok(swath_translated { addr: hit.addr.raw(), is_hit: 1, lookup_cycles, reads: 0 });
    }
    let mut miss = unit.begin(addr)?;
    let mut reads = 0;
    let result = loop {
        reads += 1;
        match unit.step(&mut miss, memory) {
            Ok(None) => {}
            Ok(Some(resolved)) => break Ok(resolved),
            Err(fault) => break Err(fault),
        }
    };
    let found = unit.complete(addr, &miss, result)?;
    Ok(swath_translated { addr: found.addr.raw(), is_hit: 0, lookup_cycles, reads })
}

/// Translates an address. On a miss `read` of `memory` is called for each descriptor in the order of the
/// walk, with `SWATH_FIELD_LINE` also for the others of the last one's line, which come with it: a simulator
/// with time takes from there what the walk costs.
///
/// Errors: `SWATH_FAULT` with the page if it is not mapped; `SWATH_FOREIGN` with the page if the format
/// cannot say it; `SWATH_CORRUPT` with the address of a reserved descriptor; `SWATH_BUS`;
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `mmu` is null or an object of this library; the functions of `memory` may be called with its context,
/// and do not use the unit; `translated` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_mmu_access(
    mmu: *mut swath_mmu,
    addr: u64,
    memory: swath_bus,
    translated: *mut swath_translated,
) -> swath_result {
    let translate = || -> Outcome<()> {
        if translated.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let (unit, memory) = unsafe { (swath_mmu::get(mmu)?, Bus::new(memory)?) };
        let addr = VirtAddr::new(addr);
        let found =
            either!(unit, unit => access(unit, addr, &memory)).map_err(|fault| match fault {
                TranslationFault::NotCanonical { .. } => {
                    swath_result::new(SWATH_FOREIGN, addr.page().raw())
                }
                TranslationFault::Translation { page, .. } => {
                    swath_result::new(SWATH_FAULT, page.raw())
                }
                TranslationFault::Reserved { at, .. } => swath_result::new(SWATH_CORRUPT, at.raw()),
                TranslationFault::Bus { error, .. } => error.into(),
            })?;
        // SAFETY: as the caller says.
        unsafe { put(translated, found) }
    };
    swath_result::of(translate())
}

/// Forgets what is kept of `count` pages from `page` on; with a count of 0 of all.
///
/// Errors: `SWATH_OVERFLOW`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `mmu` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_mmu_invalidate(
    mmu: *mut swath_mmu,
    page: u64,
    count: u64,
) -> swath_result {
    let invalidate = || -> Outcome<()> {
        let range = pages(page, count)?;
        // SAFETY: as the caller says.
        let unit = unsafe { swath_mmu::get(mmu) }?;
        match count {
            0 => either!(unit, unit => Translate::invalidate_all(unit)),
            1 => either!(unit, unit => Translate::invalidate_page(unit, Vpn::new(page))),
            _ => either!(unit, unit => Translate::invalidate_range(unit, range)),
        }
        Ok(())
    };
    swath_result::of(invalidate())
}

/// Gives the unit another root table, and forgets what it kept.
///
/// Errors: `SWATH_MISALIGNED` with the root; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `mmu` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_mmu_set_root(mmu: *mut swath_mmu, root: u64) -> swath_result {
    // SAFETY: as the caller says.
    let set = unsafe { swath_mmu::get(mmu) }.and_then(|unit| {
        let root = PhysAddr::new(root);
        Ok(either!(unit, unit => Translate::set_root(unit, root))?)
    });
    swath_result::of(set)
}

/// Tells what the unit has counted since it was made.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `mmu` is null or an object of this library; `stats` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_mmu_stats_get(
    mmu: *const swath_mmu,
    stats: *mut swath_mmu_stats,
) -> swath_result {
    // SAFETY: as the caller says.
    let told = unsafe { swath_mmu::look(mmu) }.and_then(|unit| {
        let counted: TranslationStats = either!(unit, unit => Translate::stats(unit));
        let told = swath_mmu_stats {
            first_accesses: counted.l1.accesses,
            first_misses: counted.l1.misses,
            second_accesses: counted.l2.accesses,
            second_misses: counted.l2.misses,
            walks: counted.walk.walks(),
            reads: counted.walk.reads(),
            faults: counted.walk.faults,
            saved_reads: counted.walk_cache_saved_reads,
        };
        // SAFETY: as the caller says.
        unsafe { put(stats, told) }
    });
    swath_result::of(told)
}
