//! Results in a form that C can hold: a code, and the place.

use core::ffi::{CStr, c_char};

use swath_frame::{
    ContiguousError, FrameAllocateError, FrameFreeError, FrameHotplugError, IsolateError,
};

/// Outcome of a call.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum swath_status {
    /// All went well.
    SWATH_OK = 0,
    /// A pointer that must not be null is.
    SWATH_NULL,
    /// The object is not of the kind that the function works on.
    SWATH_WRONG_OBJECT,
    /// An argument is not among those possible; `at` is its value.
    SWATH_ARGUMENT,
    /// The storage is too small; `at` is how many bytes it needs.
    SWATH_STORAGE,
    /// A request for nothing.
    SWATH_EMPTY,
    /// A range whose end cannot be said; `at` is its start.
    SWATH_OVERFLOW,
    /// Ranges overlap; `at` is where.
    SWATH_OVERLAP,
    /// There is no frame at all in the ranges.
    SWATH_NO_FRAME,
    /// Not as many frames are free; `at` is how many are.
    SWATH_OUT_OF_FRAMES,
    /// Frames are free, but no block of the order, or no segment as long; `at` is the order, or the
    /// frames wanted.
    SWATH_NO_BLOCK,
    /// Not the object's; `at` is the first such frame, page or address.
    SWATH_FOREIGN,
    /// Free already, or never handed out; `at` is the first such frame or address.
    SWATH_NOT_ALLOCATED,
    /// Not aligned as it has to be; `at` is the frame or address.
    SWATH_MISALIGNED,
    /// It is in the other state already; `at` is the frame or page.
    SWATH_STATE,
    /// More blocks than there is room for in the array; `at` is how many there are.
    SWATH_TOO_MANY_BLOCKS,
    /// No region holds the page, or none starts there; `at` is the page.
    SWATH_NO_REGION,
    /// The region lacks a right that the access needs; `at` is the page.
    SWATH_DENIED,
    /// The page is mapped; `at` is the page.
    SWATH_MAPPED,
    /// A quota does not allow it; `at` is the limit.
    SWATH_QUOTA,
    /// No memory answers; `at` is the physical address.
    SWATH_BUS,
    /// The request is larger than any pool, or than what lies between its limits; `at` is its size.
    SWATH_TOO_LARGE,
    /// No block is long enough; `at` is the largest request that could be served.
    SWATH_OUT_OF_MEMORY,
    /// Metadata in memory was overwritten; `at` is the address.
    SWATH_CORRUPT,
    /// The pool is in use; `at` is an address in use.
    SWATH_IN_USE,
    /// The object is being walked: a visitor called this from within.
    SWATH_BUSY,
    /// The page is not mapped; `at` is the page.
    SWATH_FAULT,
    /// A channel's queue has no place; `at` is the channel.
    SWATH_QUEUE_FULL,
    /// No entry of a reverse map is free.
    SWATH_OUT_OF_ENTRIES,
}

use swath_status::*;

impl swath_status {
    /// Every status, in the order of their numbers.
    pub const ALL: [Self; 29] = [
        SWATH_OK,
        SWATH_NULL,
        SWATH_WRONG_OBJECT,
        SWATH_ARGUMENT,
        SWATH_STORAGE,
        SWATH_EMPTY,
        SWATH_OVERFLOW,
        SWATH_OVERLAP,
        SWATH_NO_FRAME,
        SWATH_OUT_OF_FRAMES,
        SWATH_NO_BLOCK,
        SWATH_FOREIGN,
        SWATH_NOT_ALLOCATED,
        SWATH_MISALIGNED,
        SWATH_STATE,
        SWATH_TOO_MANY_BLOCKS,
        SWATH_NO_REGION,
        SWATH_DENIED,
        SWATH_MAPPED,
        SWATH_QUOTA,
        SWATH_BUS,
        SWATH_TOO_LARGE,
        SWATH_OUT_OF_MEMORY,
        SWATH_CORRUPT,
        SWATH_IN_USE,
        SWATH_BUSY,
        SWATH_FAULT,
        SWATH_QUEUE_FULL,
        SWATH_OUT_OF_ENTRIES,
    ];

    const fn text(self) -> &'static CStr {
        match self {
            SWATH_OK => c"all went well",
            SWATH_NULL => c"a pointer is null",
            SWATH_WRONG_OBJECT => c"the object is of another kind",
            SWATH_ARGUMENT => c"an argument is out of range",
            SWATH_STORAGE => c"the storage is too small",
            SWATH_EMPTY => c"a request for nothing",
            SWATH_OVERFLOW => c"the end of the range overflows",
            SWATH_OVERLAP => c"the range overlaps another",
            SWATH_NO_FRAME => c"there are no frames",
            SWATH_OUT_OF_FRAMES => c"too few frames are free",
            SWATH_NO_BLOCK => c"no free block is as large and aligned",
            SWATH_FOREIGN => c"it is not this object's",
            SWATH_NOT_ALLOCATED => c"it is free already",
            SWATH_MISALIGNED => c"it is not aligned",
            SWATH_STATE => c"it is in the other state",
            SWATH_TOO_MANY_BLOCKS => c"there are more blocks than room for them",
            SWATH_NO_REGION => c"no region is there",
            SWATH_DENIED => c"the region lacks the right",
            SWATH_MAPPED => c"the page is mapped",
            SWATH_QUOTA => c"the quota does not allow it",
            SWATH_BUS => c"no memory answers",
            SWATH_TOO_LARGE => c"larger than any pool",
            SWATH_OUT_OF_MEMORY => c"no block is long enough",
            SWATH_CORRUPT => c"memory was overwritten",
            SWATH_IN_USE => c"the pool is in use",
            SWATH_BUSY => c"the object is being walked",
            SWATH_FAULT => c"the page is not mapped",
            SWATH_QUEUE_FULL => c"the queue is full",
            SWATH_OUT_OF_ENTRIES => c"no entry of the reverse map is free",
        }
    }
}

/// A status and where it applies: the frame, page, address or number that the
/// status tells of, else 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct swath_result {
    /// Outcome of the call.
    pub status: swath_status,
    /// Frame, page, address or number to which the status applies.
    pub at: u64,
}

impl swath_result {
    pub(crate) const OK: Self = Self::new(SWATH_OK, 0);

    pub(crate) const fn new(status: swath_status, at: u64) -> Self {
        Self { status, at }
    }

    /// Makes it from an outcome inside this crate.
    pub(crate) fn of(result: Outcome<()>) -> Self {
        match result {
            Ok(()) => Self::OK,
            Err(error) => error,
        }
    }
}

/// Inside, an error is a result that is not `SWATH_OK`.
pub(crate) type Outcome<T> = core::result::Result<T, swath_result>;

pub(crate) const fn fail<T>(status: swath_status, at: u64) -> Outcome<T> {
    Err(swath_result::new(status, at))
}

/// Bytes of storage as `at` tells them.
pub(crate) const fn too_small<T>(needed_bytes: usize) -> Outcome<T> {
    fail(SWATH_STORAGE, needed_bytes as u64)
}

impl From<FrameAllocateError> for swath_result {
    fn from(error: FrameAllocateError) -> Self {
        match error {
            FrameAllocateError::Empty => Self::new(SWATH_EMPTY, 0),
            FrameAllocateError::OutOfFrames { free, .. } => Self::new(SWATH_OUT_OF_FRAMES, free),
            FrameAllocateError::NoBlock { order } => Self::new(SWATH_NO_BLOCK, order.k().into()),
            FrameAllocateError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

impl From<ContiguousError> for swath_result {
    fn from(error: ContiguousError) -> Self {
        match error {
            ContiguousError::Empty => Self::new(SWATH_EMPTY, 0),
            ContiguousError::Unsatisfiable { request } => Self::new(SWATH_ARGUMENT, request.count),
            ContiguousError::OutOfFrames { free, .. } => Self::new(SWATH_OUT_OF_FRAMES, free),
            ContiguousError::NoRun { request } => Self::new(SWATH_NO_BLOCK, request.count),
            ContiguousError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

impl From<FrameHotplugError> for swath_result {
    fn from(error: FrameHotplugError) -> Self {
        match error {
            FrameHotplugError::Empty => Self::new(SWATH_EMPTY, 0),
            FrameHotplugError::Overflow { extent } => Self::new(SWATH_OVERFLOW, extent.start.raw()),
            FrameHotplugError::OutOfSpan { frame, .. } => Self::new(SWATH_ARGUMENT, frame.raw()),
            FrameHotplugError::Present { frame } => Self::new(SWATH_OVERLAP, frame.raw()),
            FrameHotplugError::Absent { frame } => Self::new(SWATH_FOREIGN, frame.raw()),
            FrameHotplugError::InUse { frame } => Self::new(SWATH_STATE, frame.raw()),
            FrameHotplugError::TooManyAreas { areas } => Self::new(SWATH_STORAGE, areas as u64),
            FrameHotplugError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

impl From<FrameFreeError> for swath_result {
    fn from(error: FrameFreeError) -> Self {
        match error {
            FrameFreeError::Empty => Self::new(SWATH_EMPTY, 0),
            FrameFreeError::Overflow { extent } => Self::new(SWATH_OVERFLOW, extent.start.raw()),
            FrameFreeError::Misaligned { frame, .. } => Self::new(SWATH_MISALIGNED, frame.raw()),
            FrameFreeError::Foreign { frame } => Self::new(SWATH_FOREIGN, frame.raw()),
            FrameFreeError::NotAllocated { frame } => Self::new(SWATH_NOT_ALLOCATED, frame.raw()),
            FrameFreeError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

impl From<IsolateError> for swath_result {
    fn from(error: IsolateError) -> Self {
        match error {
            IsolateError::Empty => Self::new(SWATH_EMPTY, 0),
            IsolateError::Misaligned { extent, .. } => {
                Self::new(SWATH_MISALIGNED, extent.start.raw())
            }
            IsolateError::Foreign { frame } => Self::new(SWATH_FOREIGN, frame.raw()),
            IsolateError::State { frame } => Self::new(SWATH_STATE, frame.raw()),
            IsolateError::Corrupt(fault) => Self::new(SWATH_CORRUPT, fault.word as u64),
        }
    }
}

/// Returns the meaning of a [`swath_status`] in English: a string that is always there.
#[unsafe(no_mangle)]
pub extern "C" fn swath_status_text(status: u32) -> *const c_char {
    let known = swath_status::ALL.get(status as usize);
    known.map_or(c"no such status", |status| status.text()).as_ptr()
}
