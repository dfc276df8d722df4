//! C++'s operators `new` and `delete`, by their names in the Itanium C++ ABI: what one makes its counterpart must
//! free, with its length, which is checked as far as a block's place tells it, and all of it in the hardened form.

use core::ffi::{CStr, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr;

use swath_cmt::c::{self, Origin, Told};

/// Calls the C++ library's operator of this name, which calls the program's handler, or throws, as there is no
/// memory; null where there is no such library.
///
/// # Safety
/// The operator takes one length, or a length and an alignment.
#[cold]
unsafe fn refuse(name: &CStr, size: usize, align: usize) -> *mut c_void {
    type New = unsafe extern "C-unwind" fn(usize, usize) -> *mut c_void;
    // SAFETY: a name that ends with a zero.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if next.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: an operator of this name; one that takes no alignment ignores it.
    unsafe { transmute::<*mut c_void, New>(next)(size, align) }
}

/// Alignment of an operator that is told none.
const USUAL: usize = 16;

/// Frees a block for the counterpart of `origin`.
///
/// # Safety
/// As for C++'s.
#[inline(always)]
unsafe fn delete(block: *mut c_void, origin: Origin, layout: Option<(usize, usize)>) {
    // SAFETY: as the caller says.
    unsafe { c::delete(block, &Told { origin, layout, is_replaced }) };
}

/// Returns true if the program's `operator delete` is not this library's, so that who calls one of its others has made
/// the block in some way of its own.
#[cold]
fn is_replaced() -> bool {
    // Its address by its name would be the program's, too: in which file a function lies tells.
    let file_of = |function: *const c_void| {
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked for; the result is zero or was written.
        unsafe {
            libc::dladdr(function, info.as_mut_ptr());
            info.assume_init().dli_fbase
        }
    };
    // SAFETY: a name that ends with a zero.
    let deletes = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_ZdlPv".as_ptr()) };
    file_of(deletes) != file_of(is_replaced as fn() -> bool as *const c_void)
}

macro_rules! operators {
    ($origin:expr, $new:ident $quiet:ident $aligned:ident $aligned_quiet:ident,
     $delete:ident $sized:ident $quietly:ident $of_aligned:ident $of_aligned_sized:ident $of_aligned_quietly:ident) => {
        /// C++'s; throws if there is no memory.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $new(size: usize) -> *mut c_void {
            let block = c::new(size, USUAL, $origin);
            if block.is_null() {
                const NAME: &[u8] = concat!(stringify!($new), "\0").as_bytes();
                // SAFETY: ends with a zero; it takes one length.
                return unsafe { refuse(CStr::from_bytes_with_nul_unchecked(NAME), size, 0) };
            }
            block
        }

        /// C++'s; null if there is no memory.
        #[unsafe(no_mangle)]
        extern "C" fn $quiet(size: usize, _: *const c_void) -> *mut c_void {
            c::new(size, USUAL, $origin)
        }

        /// C++'s; throws if there is no memory.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $aligned(size: usize, align: usize) -> *mut c_void {
            let block = c::new(size, align, $origin);
            if block.is_null() {
                const NAME: &[u8] = concat!(stringify!($aligned), "\0").as_bytes();
                // SAFETY: ends with a zero; it takes a length and an alignment.
                return unsafe { refuse(CStr::from_bytes_with_nul_unchecked(NAME), size, align) };
            }
            block
        }

        /// C++'s; null if there is no memory.
        #[unsafe(no_mangle)]
        extern "C" fn $aligned_quiet(size: usize, align: usize, _: *const c_void) -> *mut c_void {
            c::new(size, align, $origin)
        }

        /// C++'s.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $delete(block: *mut c_void) {
            // SAFETY: as the caller says.
            unsafe { delete(block, $origin, None) };
        }

        /// C++'s.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $sized(block: *mut c_void, size: usize) {
            // SAFETY: as the caller says.
            unsafe { delete(block, $origin, Some((size, USUAL))) };
        }

        /// C++'s.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $quietly(block: *mut c_void, _: *const c_void) {
            // SAFETY: as the caller says.
            unsafe { delete(block, $origin, None) };
        }

        /// C++'s.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $of_aligned(block: *mut c_void, _: usize) {
            // SAFETY: as the caller says.
            unsafe { delete(block, $origin, None) };
        }

        /// C++'s.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $of_aligned_sized(block: *mut c_void, size: usize, align: usize) {
            // SAFETY: as the caller says.
            unsafe { delete(block, $origin, Some((size, align))) };
        }

        /// C++'s.
        ///
        /// # Safety
        /// As for C++'s.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $of_aligned_quietly(block: *mut c_void, _: usize, _: *const c_void) {
            // SAFETY: as the caller says.
            unsafe { delete(block, $origin, None) };
        }
    };
}

operators!(Origin::New,
    _Znwm _ZnwmRKSt9nothrow_t _ZnwmSt11align_val_t _ZnwmSt11align_val_tRKSt9nothrow_t,
    _ZdlPv _ZdlPvm _ZdlPvRKSt9nothrow_t _ZdlPvSt11align_val_t _ZdlPvmSt11align_val_t
    _ZdlPvSt11align_val_tRKSt9nothrow_t);
operators!(Origin::NewArray,
    _Znam _ZnamRKSt9nothrow_t _ZnamSt11align_val_t _ZnamSt11align_val_tRKSt9nothrow_t,
    _ZdaPv _ZdaPvm _ZdaPvRKSt9nothrow_t _ZdaPvSt11align_val_t _ZdaPvmSt11align_val_t
    _ZdaPvSt11align_val_tRKSt9nothrow_t);
