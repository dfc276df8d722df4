//! Objects in the caller's storage.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::slice;

use crate::result::swath_status::*;
use crate::result::{Outcome, fail, too_small};

/// The words behind an object.
pub(crate) type Words = &'static mut [u64];

/// The beginning of an object's storage. C holds a pointer to it.
#[repr(C)]
pub(crate) struct Object<T> {
    tag: u64,
    pub(crate) inner: T,
}

/// A structure that C can hold: an opaque type `Self` over [`Inner`](Self::Inner).
pub(crate) trait Opaque: Sized {
    /// The structure.
    type Inner;
    /// Number that tells it from others.
    const TAG: u64;

    /// Bytes of storage for an object with `words` words behind it, from an aligned
    /// start; `usize::MAX` if they cannot be addressed.
    fn storage_bytes(words: usize) -> usize {
        // The start may have to be moved to a multiple of the alignment.
        let fixed = Self::words_at() + Self::align() - 1;
        words.checked_mul(8).and_then(|bytes| bytes.checked_add(fixed)).unwrap_or(usize::MAX)
    }

    /// Returns the alignment of an object's address.
    fn align() -> usize {
        align_of::<Object<Self::Inner>>().max(8)
    }

    /// Returns the offset at which the words begin: a multiple of 8.
    fn words_at() -> usize {
        size_of::<Object<Self::Inner>>().next_multiple_of(8)
    }

    /// Makes an object in `storage`. `make` gets the words behind it.
    ///
    /// # Safety
    /// `out`, if not null, can be written. `storage`, if not null, is `len_bytes`
    /// of memory that nobody else uses as long as the object is in use.
    unsafe fn create(
        storage: *mut c_void,
        len_bytes: usize,
        words: usize,
        out: *mut *mut Self,
        make: impl FnOnce(Words) -> Outcome<Self::Inner>,
    ) -> Outcome<()> {
        let Some(out) = NonNull::new(out) else { return fail(SWATH_NULL, 0) };
        // SAFETY: as the caller says.
        let (object, words) = unsafe { Self::place(storage, len_bytes, words) }?;
        let inner = make(words)?;
        // SAFETY: aligned and long enough; `out` can be written as the caller says.
        unsafe {
            object.write(Object { tag: Self::TAG, inner });
            out.write(object.as_ptr().cast());
        }
        Ok(())
    }

    /// Makes an object as [`create`](Self::create) does, but where it is to stay: `start` makes little
    /// of it, which the compiler writes there, and `finish` the rest. No copy of it is on the stack,
    /// of which a kernel has 8 or 16 KiB.
    ///
    /// # Safety
    /// As for [`create`](Self::create).
    unsafe fn create_in_place(
        storage: *mut c_void,
        len_bytes: usize,
        words: usize,
        out: *mut *mut Self,
        start: impl FnOnce(Words) -> Self::Inner,
        finish: impl FnOnce(&mut Self::Inner) -> Outcome<()>,
    ) -> Outcome<()> {
        let Some(out) = NonNull::new(out) else { return fail(SWATH_NULL, 0) };
        // SAFETY: as the caller says.
        let (object, words) = unsafe { Self::place(storage, len_bytes, words) }?;
        // SAFETY: aligned and long enough, and nobody else's; it is no object to C without its tag.
        let made = unsafe {
            object.write(Object { tag: 0, inner: start(words) });
            &mut *object.as_ptr()
        };
        finish(&mut made.inner)?;
        made.tag = Self::TAG;
        // SAFETY: `out` can be written as the caller says.
        unsafe { out.write(object.as_ptr().cast()) };
        Ok(())
    }

    /// Makes an object on the heap, which [`end`](Self::end) ends.
    ///
    /// # Safety
    /// `out`, if not null, can be written.
    #[cfg(feature = "hw")]
    unsafe fn create_on_heap(
        out: *mut *mut Self,
        make: impl FnOnce() -> Outcome<Self::Inner>,
    ) -> Outcome<()> {
        let Some(out) = NonNull::new(out) else { return fail(SWATH_NULL, 0) };
        let object = std::boxed::Box::new(Object { tag: Self::TAG, inner: make()? });
        // SAFETY: as the caller says.
        unsafe { out.write(std::boxed::Box::into_raw(object).cast()) };
        Ok(())
    }

    /// Ends an object on the heap.
    ///
    /// # Safety
    /// `object` is null or one that a function of this crate made, of whatever kind; one of this kind was
    /// made by [`create_on_heap`](Self::create_on_heap), has not been ended, and is not used any more.
    #[cfg(feature = "hw")]
    unsafe fn end(object: *mut Self) -> Outcome<()> {
        // SAFETY: as the caller says.
        let object = unsafe { Self::checked(object) }?;
        // SAFETY: the tag says that it is such an object, which came from a box.
        drop(unsafe { std::boxed::Box::from_raw(object.as_ptr()) });
        Ok(())
    }

    /// Drops what the object is, after which it is none.
    ///
    /// # Safety
    /// As for [`get`](Self::get).
    unsafe fn drop_in_place(object: *mut Self) -> Outcome<()> {
        // SAFETY: as the caller says.
        let object = unsafe { Self::checked(object) }?;
        // SAFETY: the tag says that it is such a structure, which nobody else uses; without its tag nobody finds it again.
        unsafe {
            (*object.as_ptr()).tag = 0;
            (&raw mut (*object.as_ptr()).inner).drop_in_place();
        }
        Ok(())
    }

    /// Finds the place of an object in `storage`, and the words behind it, cleared.
    ///
    /// # Safety
    /// `storage` is as for [`create`](Self::create).
    unsafe fn place(
        storage: *mut c_void,
        len_bytes: usize,
        words: usize,
    ) -> Outcome<(NonNull<Object<Self::Inner>>, Words)> {
        let Some(start) = NonNull::new(storage.cast::<u8>()) else { return fail(SWATH_NULL, 0) };
        let needed_bytes = Self::storage_bytes(words);
        let moved = start.as_ptr().align_offset(Self::align());
        let used = Self::words_at().checked_add(words.saturating_mul(8));
        if used.and_then(|used| used.checked_add(moved)).is_none_or(|end| end > len_bytes) {
            return too_small(needed_bytes);
        }
        // SAFETY: `moved + used` bytes lie within the storage, as was just checked;
        // the words lie behind the object, aligned, and nobody else uses them.
        let (object, words) = unsafe {
            let object = start.add(moved);
            let first = object.add(Self::words_at()).cast::<u64>();
            first.write_bytes(0, words);
            (object.cast::<Object<Self::Inner>>(), slice::from_raw_parts_mut(first.as_ptr(), words))
        };
        Ok((object, words))
    }

    /// Tells whether a pointer of C is to such an object. No reference is formed.
    ///
    /// # Safety
    /// `object` is null or one that a function of this crate made, of whatever kind.
    unsafe fn checked(object: *mut Self) -> Outcome<NonNull<Object<Self::Inner>>> {
        let Some(object) = NonNull::new(object.cast::<Object<Self::Inner>>()) else {
            return fail(SWATH_NULL, 0);
        };
        // SAFETY: every object begins with a tag of eight bytes, aligned to eight; nothing
        // writes it while the object is one.
        if unsafe { object.cast::<u64>().read() } != Self::TAG {
            return fail(SWATH_WRONG_OBJECT, object.addr().get() as u64);
        }
        Ok(object)
    }

    /// The structure behind a pointer of C, for one caller.
    ///
    /// # Safety
    /// `object` is null or one that a function of this crate made, of whatever kind,
    /// and nobody else uses it for as long as the reference is.
    unsafe fn get<'a>(object: *mut Self) -> Outcome<&'a mut Self::Inner> {
        // SAFETY: as the caller says.
        let object = unsafe { Self::checked(object) }?;
        // SAFETY: the tag says that it is such a structure, which nobody else uses.
        Ok(unsafe { &mut (*object.as_ptr()).inner })
    }

    /// The structure behind a pointer of C, shared with others that read it.
    ///
    /// # Safety
    /// `object` is null or one that a function of this crate made, of whatever kind,
    /// and nobody forms a `&mut` to it ([`get`](Self::get)) for as long as the reference is.
    unsafe fn look<'a>(object: *const Self) -> Outcome<&'a Self::Inner> {
        // SAFETY: as the caller says; nothing is written through the pointer.
        let object = unsafe { Self::checked(object.cast_mut()) }?;
        // SAFETY: the tag says that it is such a structure, which nobody has for itself; a
        // shared reference leaves those of other readers valid.
        Ok(unsafe { &(*object.as_ptr()).inner })
    }
}

/// A slice of the caller's; of no elements, it may be null.
///
/// # Safety
/// `start`, if not null, points to `count` elements that can be read.
pub(crate) unsafe fn array<'a, T>(start: *const T, count: usize) -> Outcome<&'a [T]> {
    match NonNull::new(start.cast_mut()) {
        // SAFETY: as the caller says.
        Some(start) => Ok(unsafe { slice::from_raw_parts(start.as_ptr(), count) }),
        None if count == 0 => Ok(&[]),
        None => fail(SWATH_NULL, 0),
    }
}

/// Writes through a pointer of C.
///
/// # Safety
/// `out`, if not null, can be written.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Outcome<()> {
    let Some(out) = NonNull::new(out) else { return fail(SWATH_NULL, 0) };
    // SAFETY: as the caller says.
    unsafe { out.write(value) };
    Ok(())
}
