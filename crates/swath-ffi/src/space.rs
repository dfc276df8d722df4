//! Page tables in memory that functions of the caller reach.

use core::cell::RefCell;
use core::ffi::c_void;

use swath_arch::{
    Attributes, BASE_PAGE_BYTES, BusError, Coalescing, ContiguityField, Extent, Format, MemoryKind,
    PageRange, Pfn, PhysAddr, PhysMemory, Regime, Vpn,
};
use swath_frame::FrameAllocateError;
use swath_vm::{
    AddressSpace, EagerPagingError, MapPagesError, NewSpaceError, PageSizeError, Sizes,
    TranslateError, UnmapError,
};

use crate::frames::{Frames, order, swath_frames};
use crate::object::{Opaque, put};
use crate::regions::swath_memory;
use crate::result::swath_status::*;
use crate::result::{Outcome, fail, swath_result};

/// Page tables of an address space.
pub struct swath_space {
    _private: [u8; 0],
}

type Space = AddressSpace<Bus, &'static RefCell<Frames>>;

impl Opaque for swath_space {
    type Inner = Space;
    const TAG: u64 = u64::from_le_bytes(*b"swtspace");
}

/// Format of page tables.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_format {
    /// ARMv7-A, short descriptors.
    SWATH_FORMAT_ARMV7 = 0,
    /// ARMv8-A, the 4 KiB granule.
    SWATH_FORMAT_ARMV8 = 1,
    /// x86-64 with 4 levels.
    SWATH_FORMAT_X86_64 = 2,
    /// RISC-V Sv39 with Svnapot.
    SWATH_FORMAT_SV39 = 3,
    /// RISC-V Sv48 with Svnapot.
    SWATH_FORMAT_SV48 = 4,
}

/// Contiguity that descriptors of base pages state.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_scheme {
    /// None.
    SWATH_SCHEME_TRAD = 0,
    /// Ascend and Descend: pages of the same block after and before it.
    SWATH_SCHEME_PCAD = 1,
    /// Anchors: contiguous pages from every page whose number is a multiple of the distance.
    SWATH_SCHEME_AT = 2,
}

/// Place in which contiguity is written.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_field {
    /// The bits that the format leaves free in each descriptor.
    SWATH_FIELD_DESCRIPTOR = 0,
    /// Those of all descriptors of a line of 64 bytes, taken together.
    SWATH_FIELD_LINE = 1,
    /// An ideal word beside each descriptor, a frame further, which arrives with it.
    SWATH_FIELD_BESIDE = 2,
}

/// Contiguity that page tables state besides, which their writer and reader must agree upon.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_coalescing {
    /// A `swath_scheme`.
    pub scheme: u32,
    /// A `swath_field`; without effect on `SWATH_SCHEME_TRAD`.
    pub field: u32,
    /// Bits of each number in `SWATH_FIELD_BESIDE`, 1 to 32 (ARMv7: 16).
    pub field_bits: u32,
    /// log2 of the distance of anchors in pages, 1 to 16.
    pub anchor_log2: u32,
}

/// Physical memory, reached by functions. Each reads or writes 4 or 8 bytes, the lowest first, at a
/// multiple of them, and returns 0, or another number if no memory answers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct swath_bus {
    /// Reads.
    pub read: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            addr: u64,
            len_bytes: u32,
            value: *mut u64,
        ) -> i32,
    >,
    /// Writes; who only translates may leave it out.
    pub write: Option<
        unsafe extern "C" fn(context: *mut c_void, addr: u64, len_bytes: u32, value: u64) -> i32,
    >,
    /// Handed to both.
    pub context: *mut c_void,
}

/// The word of a direct map at an address; `None` where there is none.
///
/// # Safety
/// `context` is a `swath_memory` whose bytes are there.
unsafe fn direct<T>(context: *mut c_void, addr: u64) -> Option<*mut T> {
    // SAFETY: the caller's promise.
    let swath_memory { first_frame, bytes, len_bytes } =
        unsafe { context.cast::<swath_memory>().read() };
    let start = first_frame.checked_mul(BASE_PAGE_BYTES)?;
    let offset = usize::try_from(addr.checked_sub(start)?).ok()?;
    let end = offset.checked_add(size_of::<T>())?;
    (offset.is_multiple_of(size_of::<T>()) && end <= len_bytes)
        .then(|| bytes.cast::<u8>().wrapping_add(offset).cast())
}

/// # Safety
/// As for `direct`; `value` can be written.
unsafe extern "C" fn direct_read(
    context: *mut c_void,
    addr: u64,
    len_bytes: u32,
    value: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise; the word is there, aligned, and no reference reaches it.
    let word = unsafe {
        match len_bytes {
            8 => direct::<u64>(context, addr).map(|at| at.read_volatile()),
            4 => direct::<u32>(context, addr).map(|at| at.read_volatile().into()),
            _ => None,
        }
    };
    let Some(word) = word else { return 1 };
    // SAFETY: the caller's promise.
    unsafe { value.write(word) };
    0
}

/// # Safety
/// As for `direct`.
unsafe extern "C" fn direct_write(
    context: *mut c_void,
    addr: u64,
    len_bytes: u32,
    value: u64,
) -> i32 {
    // SAFETY: the caller's promise; the word is there, aligned, and no reference reaches it.
    let written = unsafe {
        match len_bytes {
            8 => direct::<u64>(context, addr).map(|at| at.write_volatile(value)),
            4 => direct::<u32>(context, addr).map(|at| at.write_volatile(value as u32)),
            _ => None,
        }
    };
    written.is_none().into()
}

/// Returns a bus to memory that the processor reaches directly (a *direct map*).
///
/// # Safety
/// `memory` is null or stays where it is, and its bytes can be read and written, as long as the bus is used; of them only
/// the library changes what it was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_bus_direct(memory: *const swath_memory) -> swath_bus {
    // Without a memory no function is there, which whoever takes the bus refuses.
    let there = !memory.is_null();
    swath_bus {
        read: there.then_some(direct_read as _),
        write: there.then_some(direct_write as _),
        context: memory.cast_mut().cast(),
    }
}

/// Memory whose functions keep what a `swath_bus` promises; where one is missing, no memory answers.
pub(crate) struct Bus(swath_bus);

impl Bus {
    /// # Safety
    /// The functions may be called with the context for as long as this is.
    pub(crate) unsafe fn new(memory: swath_bus) -> Outcome<Self> {
        if memory.read.is_none() { fail(SWATH_NULL, 0) } else { Ok(Self(memory)) }
    }

    fn read(&self, addr: PhysAddr, len_bytes: u32) -> Result<u64, BusError> {
        let mut value = 0;
        let failed = self.0.read.is_none_or(|read| {
            // SAFETY: as whoever made it promised.
            unsafe { read(self.0.context, addr.raw(), len_bytes, &raw mut value) != 0 }
        });
        if failed { Err(BusError { addr, len_bytes }) } else { Ok(value) }
    }

    fn write(&self, addr: PhysAddr, len_bytes: u32, value: u64) -> Result<(), BusError> {
        let failed = self.0.write.is_none_or(|write| {
            // SAFETY: as whoever made it promised.
            unsafe { write(self.0.context, addr.raw(), len_bytes, value) != 0 }
        });
        if failed { Err(BusError { addr, len_bytes }) } else { Ok(()) }
    }
}

impl PhysMemory for Bus {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        // Of more than was asked for nothing is taken.
        Ok(self.read(addr, 4)? as u32)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.read(addr, 8)
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.write(addr, 4, value.into())
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.write(addr, 8, value)
    }
}

pub(crate) fn format(number: u32) -> Outcome<Format> {
    let format = Format::ALL.get(number as usize).copied();
    format.ok_or(swath_result::new(SWATH_ARGUMENT, number.into()))
}

pub(crate) fn coalescing(told: swath_coalescing) -> Outcome<Coalescing> {
    if told.scheme == 0 {
        return Ok(Coalescing::None);
    }
    let field = match told.field {
        0 => ContiguityField::Descriptor,
        1 => ContiguityField::Line,
        2 => {
            let wrong = swath_result::new(SWATH_ARGUMENT, told.field_bits.into());
            ContiguityField::Beside { bits: u8::try_from(told.field_bits).map_err(|_| wrong)? }
        }
        other => return fail(SWATH_ARGUMENT, other.into()),
    };
    match told.scheme {
        1 => Ok(Coalescing::Pcad(field)),
        2 => Ok(Coalescing::Anchor { field, distance: order(told.anchor_log2)? }),
        other => fail(SWATH_ARGUMENT, other.into()),
    }
}

fn no_table(error: FrameAllocateError) -> swath_result {
    match error {
        FrameAllocateError::Corrupt(_) => error.into(),
        _ => swath_result::new(SWATH_OUT_OF_FRAMES, 0),
    }
}

impl From<NewSpaceError> for swath_result {
    fn from(error: NewSpaceError) -> Self {
        match error {
            NewSpaceError::Width { bits, .. } => Self::new(SWATH_ARGUMENT, bits.into()),
            NewSpaceError::Distance { distance } => Self::new(SWATH_ARGUMENT, distance.k().into()),
            NewSpaceError::NoSuchSize { order } => Self::new(SWATH_ARGUMENT, order.k().into()),
            NewSpaceError::NoTable(error) => no_table(error),
            NewSpaceError::TableOutOfReach { frame } => Self::new(SWATH_FOREIGN, frame.raw()),
            NewSpaceError::Bus(error) => error.into(),
        }
    }
}

impl From<MapPagesError> for swath_result {
    fn from(error: MapPagesError) -> Self {
        match error {
            MapPagesError::Empty => Self::new(SWATH_EMPTY, 0),
            MapPagesError::NotCanonical { page } => Self::new(SWATH_FOREIGN, page.raw()),
            MapPagesError::FrameOutOfReach { frame } => Self::new(SWATH_FOREIGN, frame.raw()),
            MapPagesError::AlreadyMapped { page } => Self::new(SWATH_MAPPED, page.raw()),
            MapPagesError::NoTable(error) => no_table(error),
            MapPagesError::TableOutOfReach { frame } => Self::new(SWATH_FOREIGN, frame.raw()),
            MapPagesError::Bus(error) => error.into(),
        }
    }
}

impl From<EagerPagingError> for swath_result {
    fn from(error: EagerPagingError) -> Self {
        match error {
            EagerPagingError::OutOfFrames { free, .. } => Self::new(SWATH_OUT_OF_FRAMES, free),
            EagerPagingError::Map(error) => error.into(),
        }
    }
}

impl From<UnmapError> for swath_result {
    fn from(error: UnmapError) -> Self {
        match error {
            UnmapError::Empty => Self::new(SWATH_EMPTY, 0),
            UnmapError::NotCanonical { page } => Self::new(SWATH_FOREIGN, page.raw()),
            UnmapError::NotMapped { page } => Self::new(SWATH_STATE, page.raw()),
            UnmapError::Partial { page, .. } => Self::new(SWATH_MISALIGNED, page.raw()),
            UnmapError::Bus(error) => error.into(),
            UnmapError::Refused { extent, .. } => {
                Self::new(SWATH_NOT_ALLOCATED, extent.start.raw())
            }
        }
    }
}

impl From<PageSizeError> for swath_result {
    fn from(error: PageSizeError) -> Self {
        match error {
            PageSizeError::NoSuchSize { order } => Self::new(SWATH_ARGUMENT, order.k().into()),
            PageSizeError::PageMisaligned { page, .. } => Self::new(SWATH_MISALIGNED, page.raw()),
            PageSizeError::FrameMisaligned { frame, .. } => {
                Self::new(SWATH_MISALIGNED, frame.raw())
            }
            PageSizeError::Map(error) => error.into(),
        }
    }
}

impl From<TranslateError> for swath_result {
    fn from(error: TranslateError) -> Self {
        match error {
            TranslateError::NotCanonical { page } => Self::new(SWATH_FOREIGN, page.raw()),
            TranslateError::NotMapped { page } => Self::new(SWATH_FAULT, page.raw()),
            TranslateError::Bus(error) => error.into(),
        }
    }
}

/// Writes are allowed.
pub const SWATH_PAGE_WRITABLE: u32 = 1;
/// Unprivileged code may access the page.
pub const SWATH_PAGE_USER: u32 = 2;
/// Instructions may be fetched from it.
pub const SWATH_PAGE_EXECUTABLE: u32 = 4;
/// It is the same in every address space.
pub const SWATH_PAGE_GLOBAL: u32 = 8;
/// It has been accessed.
pub const SWATH_PAGE_ACCESSED: u32 = 16;
/// It is a device's: no caching, no speculation.
pub const SWATH_PAGE_DEVICE: u32 = 32;

pub(crate) fn attributes(bits: u32) -> Outcome<Attributes> {
    if bits > 63 {
        return fail(SWATH_ARGUMENT, bits.into());
    }
    let has = |bit: u32| bits & bit != 0;
    Ok(Attributes {
        writable: has(SWATH_PAGE_WRITABLE),
        user: has(SWATH_PAGE_USER),
        executable: has(SWATH_PAGE_EXECUTABLE),
        global: has(SWATH_PAGE_GLOBAL),
        accessed: has(SWATH_PAGE_ACCESSED),
        memory: if has(SWATH_PAGE_DEVICE) { MemoryKind::Device } else { MemoryKind::Normal },
    })
}

fn attribute_bits(attributes: Attributes) -> u32 {
    let all = [
        (SWATH_PAGE_WRITABLE, attributes.writable),
        (SWATH_PAGE_USER, attributes.user),
        (SWATH_PAGE_EXECUTABLE, attributes.executable),
        (SWATH_PAGE_GLOBAL, attributes.global),
        (SWATH_PAGE_ACCESSED, attributes.accessed),
        (SWATH_PAGE_DEVICE, attributes.memory == MemoryKind::Device),
    ];
    all.into_iter().filter(|&(_, has)| has).map(|(bit, _)| bit).sum()
}

/// A translation, as the tables say it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_mapping {
    /// The frame of the page asked for.
    pub frame: u64,
    /// The order of the page that maps it.
    pub order: u32,
    /// Its attributes: `SWATH_PAGE_…`.
    pub attributes: u32,
}

/// Pages of C, in numbers that an address has.
pub(crate) fn pages(start: u64, count: u64) -> Outcome<PageRange> {
    match start.checked_add(count) {
        Some(end) if end <= 1 << 52 => Ok(PageRange::new(Vpn::new(start), count)),
        _ => fail(SWATH_OVERFLOW, start),
    }
}

/// Bytes of storage for an address space.
#[unsafe(no_mangle)]
pub extern "C" fn swath_space_storage_bytes() -> usize {
    swath_space::storage_bytes(0)
}

/// The memory and the allocators of a space, of which the memory can be written.
///
/// # Safety
/// `frames` and `tables` are null or objects of this library, to whose cells all references are shared ones; the functions
/// of `memory` may be called as long as the space is used.
unsafe fn parts(
    memory: swath_bus,
    frames: *mut swath_frames,
    tables: *mut swath_frames,
) -> Outcome<(Bus, &'static RefCell<Frames>, &'static RefCell<Frames>)> {
    if memory.write.is_none() {
        return fail(SWATH_NULL, 0);
    }
    // SAFETY: the caller's promise.
    unsafe { Ok((Bus::new(memory)?, swath_frames::look(frames)?, swath_frames::look(tables)?)) }
}

/// Makes an empty address space of a `swath_format`. Its tables are written through `memory`, which has
/// the bytes of all frames that `tables` hands out; pages get theirs from `frames`, which may be the
/// same. Takes and clears the root table.
///
/// Errors: `SWATH_ARGUMENT`; `SWATH_OUT_OF_FRAMES` without frames for the root; `SWATH_FOREIGN` with its
/// frame if the format cannot reach it; `SWATH_BUS`, `SWATH_STORAGE`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `frames` and `tables` are null or objects of this library, which stay where they are as long as the
/// space is used; the functions of `memory` may be called as long. `storage` is `len_bytes` of memory
/// that the space has for itself from now on; `space` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_create(
    format: u32,
    coalescing: swath_coalescing,
    memory: swath_bus,
    frames: *mut swath_frames,
    tables: *mut swath_frames,
    storage: *mut c_void,
    len_bytes: usize,
    space: *mut *mut swath_space,
) -> swath_result {
    let create = || -> Outcome<()> {
        let (format, coalescing) = (self::format(format)?, self::coalescing(coalescing)?);
        // SAFETY: as the caller says.
        let (memory, frames, tables) = unsafe { parts(memory, frames, tables) }?;
        let make = |_| Ok(Space::new(format, coalescing, memory, frames, tables)?);
        // SAFETY: as the caller says.
        unsafe { swath_space::create(storage, len_bytes, 0, space, make) }
    };
    swath_result::of(create())
}

/// Makes an empty address space of a `swath_format` for superpages of all its sizes, as a `swath_pmap` wants it; else as
/// `swath_space_create`.
///
/// Errors: as there.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_create_for_superpages(
    format: u32,
    memory: swath_bus,
    frames: *mut swath_frames,
    tables: *mut swath_frames,
    storage: *mut c_void,
    len_bytes: usize,
    space: *mut *mut swath_space,
) -> swath_result {
    let create = || -> Outcome<()> {
        let format = self::format(format)?;
        // SAFETY: as the caller says.
        let (memory, frames, tables) = unsafe { parts(memory, frames, tables) }?;
        let sizes = Sizes::all(format);
        let make = |_| Ok(Space::with_superpages(format, sizes, memory, frames, tables)?);
        // SAFETY: as the caller says.
        unsafe { swath_space::create(storage, len_bytes, 0, space, make) }
    };
    swath_result::of(create())
}

/// Ends an address space: its tables go back to their allocator, and so do the frames that
/// `swath_space_allocate` took. The object is none afterwards. No MMU may use its tables any more.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `space` is null or an object of this library, which nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_drop(space: *mut swath_space) -> swath_result {
    // SAFETY: as the caller says.
    swath_result::of(unsafe { swath_space::drop_in_place(space) })
}

/// Tells the physical address of the root table, which an MMU is told.
///
/// Errors: `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `space` is null or an object of this library; `root` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_root(
    space: *const swath_space,
    root: *mut u64,
) -> swath_result {
    // SAFETY: as the caller says.
    let told = unsafe { swath_space::look(space) }.and_then(|space| {
        let Regime { root: at, .. } = space.regime();
        // SAFETY: as the caller says.
        unsafe { put(root, at.raw()) }
    });
    swath_result::of(told)
}

/// Maps `count` pages from `page` on to frames from `frame` on, readable and writable by users. They are
/// one block, whose contiguity the tables state.
///
/// Errors: `SWATH_MAPPED` with the first page that is mapped; `SWATH_FOREIGN` with the page or frame that
/// the format cannot say; `SWATH_OUT_OF_FRAMES` without frames for tables; `SWATH_EMPTY`,
/// `SWATH_OVERFLOW`, `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `space` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_map(
    space: *mut swath_space,
    page: u64,
    frame: u64,
    count: u64,
) -> swath_result {
    let map = || -> Outcome<()> {
        let range = pages(page, count)?;
        pages(frame, count)?;
        // SAFETY: as the caller says.
        let space = unsafe { swath_space::get(space) }?;
        let extent = Extent::new(Pfn::new(frame), count);
        Ok(space.map(range.start, extent, Attributes::USER_DATA)?)
    };
    swath_result::of(map())
}

/// Allocates frames for `count` pages from `page` on, in blocks as its allocator of frames hands them
/// out, and maps them, readable and writable by users.
///
/// Errors: as for `swath_space_map`; `SWATH_OUT_OF_FRAMES` with how many are free.
///
/// # Safety
/// `space` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_allocate(
    space: *mut swath_space,
    page: u64,
    count: u64,
) -> swath_result {
    let allocate = || -> Outcome<()> {
        let range = pages(page, count)?;
        // SAFETY: as the caller says.
        let space = unsafe { swath_space::get(space) }?;
        Ok(space.allocate_eager(range, Attributes::USER_DATA, &mut |_| {})?)
    };
    swath_result::of(allocate())
}

/// Takes pages out, all of which are mapped, and gives the frames that `swath_space_allocate` took back.
/// What an MMU still has of them is to be invalidated, and of the block's other pages, too.
///
/// Errors: `SWATH_STATE` with the first page that is not mapped; `SWATH_FOREIGN`, `SWATH_EMPTY`,
/// `SWATH_OVERFLOW`, `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`; `SWATH_NOT_ALLOCATED` with the
/// frame that the allocator did not take back.
///
/// # Safety
/// `space` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_unmap(
    space: *mut swath_space,
    page: u64,
    count: u64,
) -> swath_result {
    let unmap = || -> Outcome<()> {
        let range = pages(page, count)?;
        // SAFETY: as the caller says.
        let space = unsafe { swath_space::get(space) }?;
        let _flush = space.unmap(range)?;
        Ok(())
    };
    swath_result::of(unmap())
}

/// Maps `count` pages from `page` on to frames from `frame` on, in pages as large as place and length allow, with these
/// attributes (`SWATH_PAGE_…`).
///
/// Errors: as for `swath_space_map`; `SWATH_ARGUMENT`.
///
/// # Safety
/// `space` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_map_largest(
    space: *mut swath_space,
    page: u64,
    frame: u64,
    count: u64,
    attributes: u32,
) -> swath_result {
    let map = || -> Outcome<()> {
        let (range, attributes) = (pages(page, count)?, self::attributes(attributes)?);
        pages(frame, count)?;
        // SAFETY: as the caller says.
        let space = unsafe { swath_space::get(space) }?;
        let sizes = Sizes::all(space.regime().format);
        let extent = Extent::new(Pfn::new(frame), count);
        Ok(space.map_largest(range.start, extent, sizes, attributes)?)
    };
    swath_result::of(map())
}

/// Maps one page of 2^`k` base pages, with these attributes (`SWATH_PAGE_…`).
///
/// Errors: as for `swath_space_map`; `SWATH_ARGUMENT` with an order that the format has no page of;
/// `SWATH_MISALIGNED` with the page or frame.
///
/// # Safety
/// `space` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_map_page_size(
    space: *mut swath_space,
    page: u64,
    frame: u64,
    k: u32,
    attributes: u32,
) -> swath_result {
    let map = || -> Outcome<()> {
        let (page, attributes) = (pages(page, 1)?.start, self::attributes(attributes)?);
        // SAFETY: as the caller says.
        let space = unsafe { swath_space::get(space) }?;
        Ok(space.map_page_size(page, Pfn::new(frame), order(k)?, attributes)?)
    };
    swath_result::of(map())
}

/// Tells what the tables say of a page.
///
/// Errors: `SWATH_FAULT` with the page, if it is not mapped; `SWATH_FOREIGN` with the page that the format cannot
/// say; `SWATH_OVERFLOW`, `SWATH_BUS`, `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `space` is null or an object of this library; `mapping` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_translate(
    space: *const swath_space,
    page: u64,
    mapping: *mut swath_mapping,
) -> swath_result {
    let translate = || -> Outcome<()> {
        let page = pages(page, 1)?.start;
        // SAFETY: as the caller says.
        let found = unsafe { swath_space::look(space) }?.translate(page)?;
        let told = swath_mapping {
            frame: found.frame.raw(),
            order: found.order.k(),
            attributes: attribute_bits(found.attributes),
        };
        // SAFETY: as the caller says.
        unsafe { put(mapping, told) }
    };
    swath_result::of(translate())
}

/// Walks every invariant of the tables.
///
/// Errors: `SWATH_CORRUPT` if one does not hold; `SWATH_NULL`, `SWATH_WRONG_OBJECT`.
///
/// # Safety
/// `space` is null or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swath_space_check(space: *const swath_space) -> swath_result {
    // SAFETY: as the caller says.
    let checked = unsafe { swath_space::look(space) };
    let wrong = |_| swath_result::new(SWATH_CORRUPT, 0);
    swath_result::of(checked.and_then(|space| space.check().map_err(wrong)))
}
