//! One opened shared library.

use core::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};

/// A library that was opened `RTLD_NOW | RTLD_LOCAL`. Closed when dropped, unless pinned.
pub struct Opened {
    #[cfg(unix)]
    handle: libloading::os::unix::Library,
    name: PathBuf,
}

#[cfg(unix)]
impl Opened {
    /// Opens a file or, for a bare name, what the dynamic linker finds under it.
    ///
    /// # Errors
    /// The dynamic linker's message.
    pub(super) fn open(name: &Path) -> Result<Self, String> {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: initialisers of the libraries that this crate opens (NCCL, its extensions, the
        // driver) may run on any thread and do not touch Rust state. A file that is something
        // else is the caller's choice of path.
        let handle = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        handle.map(|handle| Self { handle, name: name.into() }).map_err(|e| reason(&e))
    }

    /// The library of that SONAME, if the process has it mapped already.
    pub(super) fn mapped(name: &Path) -> Option<Self> {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: RTLD_NOLOAD runs no initialiser.
        let handle = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) };
        handle.ok().map(|handle| Self { handle, name: name.into() })
    }

    /// The address of a symbol of this library or of one that it needs; NULL if there is none.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the symbol is taken as an address; its user states its type.
        unsafe { self.handle.get::<*mut c_void>(name.to_bytes_with_nul()) }
            .map_or(core::ptr::null_mut(), |symbol| symbol.into_raw().cast())
    }

    /// The file that holds the code at `address`.
    #[must_use]
    #[expect(clippy::not_unsafe_ptr_arg_deref, reason = "dladdr compares the address, no more")]
    pub fn file_of(&self, address: *const c_void) -> PathBuf {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `info` outlives the call; any address may be asked for.
        let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
        // SAFETY: zero bytes are a valid `Dl_info`, and `dladdr` only writes valid fields.
        let file = unsafe { info.assume_init() }.dli_fname;
        if found == 0 || file.is_null() {
            return self.name.clone();
        }
        // SAFETY: the linker's names are NUL-terminated and live as long as the mapping.
        let file = unsafe { CStr::from_ptr(file) };
        PathBuf::from(file.to_string_lossy().into_owned())
    }

    /// Keeps the library mapped for the rest of the process.
    pub(super) fn pin(self) {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: the library is mapped; this only raises its reference count and its flag.
        let pinned =
            unsafe { Library::open(Some(&self.name), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) };
        if let Ok(pinned) = pinned {
            std::mem::forget(pinned);
        }
        std::mem::forget(self);
    }
}

#[cfg(unix)]
const RTLD_NOLOAD: c_int = libc::RTLD_NOLOAD;
#[cfg(unix)]
const RTLD_NODELETE: c_int = libc::RTLD_NODELETE;

/// The linker's own words; libloading wraps them.
#[cfg(unix)]
fn reason(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
