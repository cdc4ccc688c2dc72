//! The C++ runtime that threw an exception.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;

use super::abi::{Exception, TypeInfo};

/// What a handler needs of it.
pub(super) struct Runtime {
    pub(super) begin_catch: unsafe extern "C" fn(*mut Exception) -> *mut c_void,
    pub(super) end_catch: unsafe extern "C" fn(),
    pub(super) current_type: unsafe extern "C" fn() -> *const TypeInfo,
    pub(super) demangle: Demangle,
    pub(super) std_exception: *const TypeInfo,
    _library: Library,
}

type Demangle =
    unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

impl Runtime {
    /// The one that threw the exception; `None` if it lacks anything.
    ///
    /// # Safety
    /// A raised C++ exception.
    pub(super) unsafe fn of(exception: *const Exception) -> Option<Self> {
        // SAFETY: raised exceptions are readable.
        let cleanup = unsafe { (*exception).cleanup }?;
        let library = Library::holding(cleanup as *const c_void)?;
        // SAFETY: these names have these types in the Itanium C++ ABI.
        unsafe {
            Some(Self {
                begin_catch: library.function(c"__cxa_begin_catch")?,
                end_catch: library.function(c"__cxa_end_catch")?,
                current_type: library.function(c"__cxa_current_exception_type")?,
                demangle: library.function(c"__cxa_demangle")?,
                std_exception: library.symbol(c"_ZTISt9exception")?.cast(),
                _library: library,
            })
        }
    }
}

/// A mapped library. Closed again when dropped.
struct Library {
    handle: *mut c_void,
}

impl Library {
    /// The library with the code at `address`, if it is a C++ runtime of its own and not one that
    /// needs another: a handle finds symbols of both.
    fn holding(address: *const c_void) -> Option<Self> {
        let place = place(address)?;
        // SAFETY: the linker's own name of a mapped file; a file that is not is not opened.
        let handle = unsafe { libc::dlopen(place.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        let library = (!handle.is_null()).then_some(Self { handle })?;
        let found = self::place(library.symbol(c"__cxa_begin_catch")?)?;
        (found.dli_fbase == place.dli_fbase).then_some(library)
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, the name ends with NUL.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer") };
        let address = self.symbol(name)?;
        // SAFETY: of one size, and this function's own contract.
        Some(unsafe { core::mem::transmute_copy(&address) })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened by `holding`. It stays mapped: what made it so still does.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// Where an address lies, if in a mapped file.
fn place(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` outlives the call; any address may be asked for.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
    // SAFETY: zero bytes are a valid `Dl_info`, and `dladdr` only writes valid fields.
    found.then(|| unsafe { info.assume_init() })
}
