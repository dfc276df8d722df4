//! The mappings of all spaces of a kernel: superpages that arise and vanish by themselves, and a reverse map of
//! every frame.

use core::ffi::c_void;

use core::cell::RefCell;

use swath_arch::{Extent, Order, Pfn};
use swath_vm::pmap::Reached;
use swath_vm::{
    AddressSpace, Faulted, Flush, KeptPermissions, PageAccess, Pmap, PmapError, PmapFault,
    ReverseError, ReverseFault, ReverseMap, Site, Sizes, SpaceId, Spaces, Status,
};

use crate::frames::{Frames, order};
use crate::map::swath_extent;
use crate::object::{Opaque, Words, put};
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};
use crate::space::{Bus, attributes, format, pages, swath_space};

/// Mappings of all spaces.
pub struct swath_pmap {
    _private: [u8; 0],
}

/// The pmap, and how it reaches the spaces.
pub(crate) struct Mappings {
    pmap: Pmap<Words>,
    spaces: swath_spaces,
}

impl Opaque for swath_pmap {
    type Inner = Mappings;
    const TAG: u64 = u64::from_le_bytes(*b"swthpmap");
}

/// TLB maintenance that a change of tables owes: every entry that covers one of these pages is to be
/// invalidated, also a coalesced one that was filled from a page outside.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_flush {
    /// The first page.
    pub first_page: u64,
    /// Number of pages.
    pub count: u64,
    /// 1 if links to tables changed, so that caches of the entries on the way are to be invalidated, too.
    pub links_changed: u32,
}

impl From<Flush> for swath_flush {
    fn from(flush: Flush) -> Self {
        Self {
            first_page: flush.range.start.raw(),
            count: flush.range.count,
            links_changed: flush.links_changed.into(),
        }
    }
}

/// The spaces that a pmap reaches, by numbers of the caller's, and the maintenance of their TLBs. Neither function
/// may be missing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct swath_spaces {
    /// Returns the space of a number, made for superpages; null if there is none.
    pub reach: Option<unsafe extern "C" fn(context: *mut c_void, space: u32) -> *mut swath_space>,
    /// Does the maintenance, which is done when it returns: in the middle of a promotion or demotion, where
    /// processors want the old entries gone before the new ones are there.
    pub flush: Option<unsafe extern "C" fn(context: *mut c_void, space: u32, flush: swath_flush)>,
    /// Handed to both.
    pub context: *mut c_void,
}

/// Access of a processor to a page.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_access {
    /// Nothing yet: the page is mapped in advance.
    SWATH_ACCESS_NONE = 0,
    /// It reads or executes.
    SWATH_ACCESS_READ = 1,
    /// It writes.
    SWATH_ACCESS_WRITE = 2,
}

/// Place in which a pmap keeps whether a page was accessed and written.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_flags_place {
    /// In the tables.
    SWATH_FLAGS_IN_TABLE = 0,
    /// In the entries of the reverse map, which take half as much again.
    SWATH_FLAGS_IN_REVERSE_MAP = 1,
}

/// The outcome of a fault.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_faulted {
    /// The order of the page that permits the access now.
    pub order: u32,
    /// 0, or 1 if the superpage could not be demoted and is gone: the page is to be entered anew.
    pub removed: u32,
    /// The first of the pages that are gone.
    pub first_page: u64,
    /// Their number.
    pub count: u64,
}

/// The spaces as a call reaches them.
struct Reach<F> {
    spaces: swath_spaces,
    flush: F,
}

impl<F: FnMut(SpaceId, Flush)> Spaces for Reach<F> {
    type Memory = Bus;
    type Frames = &'static RefCell<Frames>;
    type Tables = &'static RefCell<Frames>;

    fn reach(&mut self, space: SpaceId) -> Option<Reached<'_, Self>> {
        let reach = self.spaces.reach?;
        // SAFETY: whoever made the pmap promised it of the function: it returns null or an object of the library, of
        // which nobody else has a reference during the call.
        let space: &mut AddressSpace<_, _, _> = unsafe {
            let space = reach(self.spaces.context, space.0);
            swath_space::get(space)
        }
        .ok()?;
        Some((space, &mut self.flush))
    }
}

/// The maintenance as the function of the caller's does it.
fn by_caller(spaces: swath_spaces) -> impl FnMut(SpaceId, Flush) {
    move |space, flush| {
        if let Some(by_caller) = spaces.flush {
            // SAFETY: as whoever made the pmap promised.
            unsafe { by_caller(spaces.context, space.0, flush.into()) };
        }
    }
}

impl From<PmapError> for swath_result {
    fn from(error: PmapError) -> Self {
        match error {
            PmapError::NoSpace { space } => Self::new(SWATH_ARGUMENT, space.0.into()),
            PmapError::Sizes { space } => Self::new(SWATH_STATE, space.0.into()),
            PmapError::UnknownFrame { frame } => Self::new(SWATH_FOREIGN, frame.raw()),
            PmapError::Denied { page } => Self::new(SWATH_DENIED, page.raw()),
            PmapError::OutOfEntries => Self::new(SWATH_OUT_OF_ENTRIES, 0),
            PmapError::NotCanonical { page } => Self::new(SWATH_FOREIGN, page.raw()),
            PmapError::NotMapped { page } => Self::new(SWATH_FAULT, page.raw()),
            PmapError::Map(error) => error.into(),
            PmapError::MapSuperpage(error) => error.into(),
            PmapError::Bus(error) => error.into(),
        }
    }
}

impl From<ReverseError> for swath_result {
    fn from(error: ReverseError) -> Self {
        match error {
            ReverseError::TooMany { frames } => Self::new(SWATH_OVERFLOW, frames.start.raw()),
            ReverseError::Short { needed, .. } => {
                Self::new(SWATH_STORAGE, (needed as u64).saturating_mul(8))
            }
        }
    }
}

impl From<PmapFault> for swath_result {
    fn from(fault: PmapFault) -> Self {
        let at = match fault {
            PmapFault::NoSpace { space } => return Self::new(SWATH_ARGUMENT, space.0.into()),
            PmapFault::Space { space, .. } => space.0.into(),
            PmapFault::Missing { site } | PmapFault::Flags { site } => site.page.raw(),
            PmapFault::Reverse(ReverseFault::Link { frame } | ReverseFault::Entry { frame }) => {
                frame.raw()
            }
            PmapFault::Reverse(ReverseFault::Lost { found, .. }) => found,
            PmapFault::Surplus { entered, .. } => entered,
        };
        Self::new(SWATH_CORRUPT, at)
    }
}

fn place(number: u32) -> Outcome<Status> {
    match number {
        0 => Ok(Status::InTable),
        1 => Ok(Status::InReverseMap),
        other => fail(SWATH_ARGUMENT, other.into()),
    }
}

fn access(number: u32) -> Outcome<PageAccess> {
    match number {
        0 => Ok(PageAccess::None),
        1 => Ok(PageAccess::Read),
        2 => Ok(PageAccess::Write),
        other => fail(SWATH_ARGUMENT, other.into()),
    }
}

fn site(space: u32, page: u64) -> Outcome<Site> {
    Ok(Site { space: SpaceId(space), page: pages(page, 1)?.start })
}

/// The largest order that is full; 0: not even the smallest.
fn full(k: u32) -> Outcome<Option<Order>> {
    Ok(Some(order(k)?).filter(|&order| order > Order::BASE))
}

fn words(frames: Extent, format: u32, flags: u32, entries: u32) -> Outcome<usize> {
    let (sizes, status) = (Sizes::all(self::format(format)?), place(flags)?);
    let words = ReverseMap::words_needed(frames, sizes, status, entries);
    words.ok_or(swath_result::new(SWATH_OVERFLOW, frames.start.raw()))
}

/// The pmap behind a pointer of C, and the spaces that it reaches.
///
/// # Safety
/// `pmap` is null or an object of this library, which nobody else uses as long as the reference is.
#[allow(clippy::type_complexity, reason = "a pair, whose closure has no name")]
unsafe fn open<'a>(
    pmap: *mut swath_pmap,
) -> Outcome<(&'a mut Pmap<Words>, Reach<impl FnMut(SpaceId, Flush)>)> {
    // SAFETY: as the caller says.
    let Mappings { pmap, spaces } = unsafe { swath_pmap::get(pmap) }?;
    Ok((pmap, Reach { spaces: *spaces, flush: by_caller(*spaces) }))
}

/// Bytes of storage for a pmap of these frames in a `swath_format`, with `entries` entries of its reverse map: as many
/// as there are mappings at a time always suffice. `flags` is a `swath_flags_place`. 0 if an argument is wrong.
#[unsafe(no_mangle)]
pub extern "C" fn swath_pmap_storage_bytes(
    frames: swath_extent,
    format: u32,
    flags: u32,
    entries: u32,
) -> usize {
    words(frames.into(), format, flags, entries).map_or(0, swath_pmap::storage_bytes)
}

/// Makes a pmap of these frames, for spaces of a `swath_format` without a mapping to them.
///
/// Errors: `SWATH_ARGUMENT`; `SWATH_OVERFLOW` for frames beyond the last number; `SWATH_NULL` also for a function
/// that is missing; `SWATH_STORAGE`.
///
/// # Safety
/// The functions of `spaces` may be called with its context as long as the pmap is used. `reach` returns null or an
/// object of this library, one for each number, that nobody else uses during a call of a function of the pmap;
/// `flush` calls no function of the pmap or of its spaces. `storage` is `len_bytes` of memory that the pmap has for itself
/// from now on; `pmap` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_create(
    frames: swath_extent,
    format: u32,
    flags: u32,
    entries: u32,
    spaces: swath_spaces,
    storage: *mut c_void,
    len_bytes: usize,
    pmap: *mut *mut swath_pmap,
) -> swath_result {
    let create = || -> Outcome<()> {
        let frames = Extent::from(frames);
        let words = words(frames, format, flags, entries)?;
        let (sizes, status) = (Sizes::all(self::format(format)?), place(flags)?);
        if spaces.reach.is_none() || spaces.flush.is_none() {
            return fail(SWATH_NULL, 0);
        }
        let make = |words| {
            let reverse = ReverseMap::new(frames, sizes, status, words)?;
            Ok(Mappings { pmap: Pmap::new(reverse), spaces })
        };
        // SAFETY: as the caller says.
        unsafe { swath_pmap::create(storage, len_bytes, words, pmap, make) }
    };
    swath_result::of(create())
}

/// Maps a page of a space that is not mapped to a frame: writable if `access` (a `swath_access`) is a write, and
/// accessed if there is one. Then promotes it, as far as `full_order` and the pages around it permit: the largest order
/// of which all frames around this one are populated, 0 if there is none. `order` is that of the page that maps it
/// now. `attributes_max` (`SWATH_PAGE_…`) is what the page may ever permit.
///
/// Errors: `SWATH_ARGUMENT` with the space that is none, or another wrong number; `SWATH_STATE` with a space for other
/// superpages; `SWATH_FOREIGN` with the frame that is none of the pmap's, or the page that the format cannot say;
/// `SWATH_DENIED` with the page, for a write that `attributes_max` forbids; `SWATH_OUT_OF_ENTRIES`; those of
/// `swath_space_map`.
///
/// # Safety
/// `pmap` is null or an object of this library; `order` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_enter(
    pmap: *mut swath_pmap,
    space: u32,
    page: u64,
    frame: u64,
    attributes_max: u32,
    access: u32,
    full_order: u32,
    order: *mut u32,
) -> swath_result {
    let enter = || -> Outcome<()> {
        let (site, full) = (site(space, page)?, full(full_order)?);
        let (most, access) = (attributes(attributes_max)?, self::access(access)?);
        if order.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let (pmap, mut spaces) = unsafe { open(pmap) }?;
        let done = pmap.enter(&mut spaces, site, Pfn::new(frame), most, access, full)?;
        // SAFETY: as the caller says.
        unsafe { put(order, done.k()) }
    };
    swath_result::of(enter())
}

/// Maps a superpage of 2^`k` pages at once, of which no page is mapped. A write makes all of it writable, and so
/// modified.
///
/// Errors: as for `swath_pmap_enter`; `SWATH_ARGUMENT` with an order that is no superpage of the space;
/// `SWATH_MISALIGNED` with the page or frame.
///
/// # Safety
/// `pmap` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_enter_superpage(
    pmap: *mut swath_pmap,
    space: u32,
    page: u64,
    frame: u64,
    k: u32,
    attributes_max: u32,
    access: u32,
) -> swath_result {
    let enter = || -> Outcome<()> {
        let (site, frames) = (site(space, page)?, (Pfn::new(frame), order(k)?));
        let (most, access) = (attributes(attributes_max)?, self::access(access)?);
        // SAFETY: as the caller says.
        let (pmap, mut spaces) = unsafe { open(pmap) }?;
        Ok(pmap.enter_superpage(&mut spaces, site, frames, most, access)?)
    };
    swath_result::of(enter())
}

/// Handles the fault of a page that is mapped and does not permit an access yet, though the kernel does: it becomes
/// accessed, and for a write writable, which demotes a read-only superpage. Then promotes it as `swath_pmap_enter` does.
///
/// Errors: `SWATH_FAULT` with the page, if it is not mapped; `SWATH_ARGUMENT`, `SWATH_FOREIGN`, `SWATH_BUS`,
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`. Superpages may have been demoted.
///
/// # Safety
/// `pmap` is null or an object of this library; `faulted` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_fault(
    pmap: *mut swath_pmap,
    space: u32,
    page: u64,
    access: u32,
    full_order: u32,
    faulted: *mut swath_faulted,
) -> swath_result {
    let fault = || -> Outcome<()> {
        let (site, access) = (site(space, page)?, self::access(access)?);
        let full = full(full_order)?;
        if faulted.is_null() {
            return fail(SWATH_NULL, 0);
        }
        // SAFETY: as the caller says.
        let (pmap, mut spaces) = unsafe { open(pmap) }?;
        let done = pmap.fault(&mut spaces, site, access, full)?;
        let outcome = match done {
            Faulted::Mapped { order } => {
                swath_faulted { order: order.k(), removed: 0, first_page: 0, count: 0 }
            }
            Faulted::Removed { range } => swath_faulted {
                order: 0,
                removed: 1,
                first_page: range.start.raw(),
                count: range.count,
            },
        };
        // SAFETY: as the caller says.
        unsafe { put(faulted, outcome) }
    };
    swath_result::of(fault())
}

/// Takes permissions from every mapping in `count` pages from `page` on: writable pages stay so only with
/// `keeps_writable` other than 0, executable ones with `keeps_executable`. That a page was written is remembered.
///
/// Errors: as for `swath_pmap_fault`; `SWATH_OVERFLOW`. After `SWATH_BUS` a first part of the range is changed.
///
/// # Safety
/// `pmap` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_protect(
    pmap: *mut swath_pmap,
    space: u32,
    page: u64,
    count: u64,
    keeps_writable: u32,
    keeps_executable: u32,
) -> swath_result {
    let protect = || -> Outcome<()> {
        let range = pages(page, count)?;
        let kept =
            KeptPermissions { writable: keeps_writable != 0, executable: keeps_executable != 0 };
        // SAFETY: as the caller says.
        let (pmap, mut spaces) = unsafe { open(pmap) }?;
        Ok(pmap.protect(&mut spaces, SpaceId(space), range, kept)?)
    };
    swath_result::of(protect())
}

/// Writes a number to `out`, if that is not null.
///
/// # Safety
/// `out` is null or can be written.
unsafe fn tell(out: *mut u64, told: Outcome<u64>) -> swath_result {
    swath_result::of(told.and_then(|number| match out.is_null() {
        true => Ok(()),
        // SAFETY: as the caller says.
        false => unsafe { put(out, number) },
    }))
}

/// The body of a function that calls a pmap and tells a number: `pmap` and `out` are as its contract says.
macro_rules! told {
    ($pmap:ident, $out:ident, $call:ident($($argument:expr),*)) => {{
        let call = || -> Outcome<u64> {
            // SAFETY: as the caller says.
            let (pmap, mut spaces) = unsafe { open($pmap) }?;
            Ok(pmap.$call(&mut spaces, $($argument),*)?.into())
        };
        // SAFETY: as the caller says.
        unsafe { tell($out, call()) }
    }};
}

/// Removes every mapping in `count` pages from `page` on; a superpage that lies there in part is demoted, or removed
/// if it cannot be. What its flags said is remembered. `removed`, if it is not null, is how many mappings went.
///
/// Errors: as for `swath_pmap_protect`.
///
/// # Safety
/// `pmap` is null or an object of this library; `removed` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_remove(
    pmap: *mut swath_pmap,
    space: u32,
    page: u64,
    count: u64,
    removed: *mut u64,
) -> swath_result {
    let range = match pages(page, count) {
        Ok(range) => range,
        Err(error) => return error,
    };
    told!(pmap, removed, remove(SpaceId(space), range))
}

/// Removes every mapping of a frame, in all spaces. `removed`, if it is not null, is how many went; whether the frame
/// was written, `swath_pmap_modified` says.
///
/// Errors: `SWATH_FOREIGN` with the frame that is none of the pmap's; `SWATH_ARGUMENT` with a space that is no more;
/// `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `pmap` is null or an object of this library; `removed` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_page_out(
    pmap: *mut swath_pmap,
    frame: u64,
    removed: *mut u64,
) -> swath_result {
    told!(pmap, removed, page_out(Pfn::new(frame)))
}

/// Records that a frame was laundered: it is read-only again wherever it is mapped, and no longer modified.
/// `modified`, if it is not null, is 1 if it was.
///
/// Errors: as for `swath_pmap_page_out`.
///
/// # Safety
/// `pmap` is null or an object of this library; `modified` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_clean(
    pmap: *mut swath_pmap,
    frame: u64,
    modified: *mut u64,
) -> swath_result {
    told!(pmap, modified, clean(Pfn::new(frame)))
}

/// Tells whether a frame was written since it was last clean: 1 or 0.
///
/// Errors: as for `swath_pmap_page_out`.
///
/// # Safety
/// `pmap` is null or an object of this library; `modified` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_modified(
    pmap: *mut swath_pmap,
    frame: u64,
    modified: *mut u64,
) -> swath_result {
    told!(pmap, modified, modified(Pfn::new(frame)))
}

/// Tells whether a frame was accessed: 1 or 0.
///
/// Errors: as for `swath_pmap_page_out`.
///
/// # Safety
/// `pmap` is null or an object of this library; `referenced` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_referenced(
    pmap: *mut swath_pmap,
    frame: u64,
    referenced: *mut u64,
) -> swath_result {
    told!(pmap, referenced, referenced(Pfn::new(frame)))
}

/// Calls `visit` with each mapping of a frame: the space, the first page of the mapping, its order.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `pmap` is null or an object of this library, which `visit` does not use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_each_mapping(
    pmap: *const swath_pmap,
    frame: u64,
    visit: Option<unsafe extern "C" fn(context: *mut c_void, space: u32, page: u64, order: u32)>,
    context: *mut c_void,
) -> swath_result {
    let walk = || {
        // SAFETY: as the caller says.
        let mappings = unsafe { swath_pmap::look(pmap) }?;
        let visit = visit.ok_or(swath_result::new(SWATH_NULL, 0))?;
        mappings.pmap.reverse().for_each(Pfn::new(frame), &mut |order, Site { space, page }| {
            // SAFETY: the caller gave the function and its context.
            unsafe { visit(context, space.0, page.raw(), order.k()) };
        });
        Ok(())
    };
    swath_result::of(walk())
}

/// Entries of the reverse map that are free; 0 for an object that is none such.
///
/// # Safety
/// `pmap` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_free_entries(pmap: *const swath_pmap) -> u32 {
    // SAFETY: as the caller says.
    unsafe { swath_pmap::look(pmap) }.map_or(0, |mappings| mappings.pmap.reverse().free_entries())
}

/// Walks every invariant of the pmap and of the spaces of the numbers below `spaces`, which are all that have mappings,
/// and have none of another's; with 0 that of the reverse map alone.
///
/// Errors: `SWATH_CORRUPT` with the page, frame or space that is wrong; `SWATH_ARGUMENT` with a space that is none;
/// `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `pmap` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_pmap_check(pmap: *mut swath_pmap, spaces: u32) -> swath_result {
    let check = || -> Outcome<()> {
        // SAFETY: as the caller says.
        let (pmap, mut reach) = unsafe { open(pmap) }?;
        if spaces == 0 {
            return Ok(pmap.reverse().check().map_err(PmapFault::Reverse)?);
        }
        Ok(pmap.check(&mut reach, (0..spaces).map(SpaceId))?)
    };
    swath_result::of(check())
}
