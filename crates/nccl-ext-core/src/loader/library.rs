//! One opened shared library.

use core::ffi::{CStr, c_void};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::version::Version;

/// A library that was opened `RTLD_NOW | RTLD_LOCAL`. Closed when dropped, unless kept.
pub struct Opened {
    #[cfg(unix)]
    handle: libloading::os::unix::Library,
    /// As it was given to the dynamic linker.
    name: PathBuf,
    /// The linker's own record of the library; valid while it is open.
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    record: *const opening::LinkMap,
}

impl Opened {
    /// The address of a symbol of this library or of one that it needs; NULL if there is none.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        #[cfg(unix)]
        {
            // SAFETY: the symbol is taken as an address; its user states its type.
            unsafe { self.handle.get::<*mut c_void>(name.to_bytes_with_nul()) }
                .map_or(core::ptr::null_mut(), |symbol| symbol.into_raw().cast())
        }
        #[cfg(not(unix))]
        {
            let _ = name;
            core::ptr::null_mut()
        }
    }

    /// A table that was resolved from this library, and the file that holds its functions.
    /// `symbols` are their names; the library's version that has them all is `needs`.
    ///
    /// # Errors
    /// [`Error::MissingSymbols`] with every name of `resolved` that there is not.
    pub fn complete<T>(
        &self,
        resolved: Result<T, Vec<&'static str>>,
        symbols: &[&CStr],
        needs: Version,
    ) -> Result<(T, PathBuf)> {
        let present = symbols.iter().map(|name| self.symbol(name)).find(|at| !at.is_null());
        let library = self.file_of(present.unwrap_or(core::ptr::null_mut()));
        match resolved {
            Ok(table) => Ok((table, library)),
            Err(symbols) => Err(Error::MissingSymbols { symbols, library, found: None, needs }),
        }
    }

    /// The file that holds the code at `address`.
    #[must_use]
    pub fn file_of(&self, address: *const c_void) -> PathBuf {
        #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
        return super::mapped::file_of(address).unwrap_or_else(|| self.path());
        #[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
        {
            let _ = address;
            self.name.clone()
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod opening {
    use core::ffi::{CStr, c_char, c_void};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::{Path, PathBuf};

    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    use super::Opened;

    /// The part of C's `struct link_map` that is fixed.
    #[repr(C)]
    pub(super) struct LinkMap {
        /// What is added to the file's addresses.
        _offset: usize,
        name: *const c_char,
        /// The dynamic section, which lies in the mapping.
        dynamic: *const c_void,
    }

    impl Opened {
        fn new(handle: Library, name: &Path) -> Self {
            let raw = handle.into_raw();
            let mut record: *const LinkMap = core::ptr::null();
            // SAFETY: the handle is open, and the request stores one pointer.
            unsafe { libc::dlinfo(raw, libc::RTLD_DI_LINKMAP, (&raw mut record).cast()) };
            // SAFETY: the handle was just taken out.
            let handle = unsafe { Library::from_raw(raw) };
            Self { handle, name: name.into(), record }
        }

        /// The file that is mapped.
        pub(in crate::loader) fn path(&self) -> PathBuf {
            // SAFETY: the linker's record, or null when it gave none.
            let name = unsafe { self.record.as_ref() }.map(|record| record.name);
            match name.filter(|name| !name.is_null()) {
                Some(name) => {
                    // SAFETY: the linker's names are NUL-terminated and live as long as the
                    // mapping.
                    let name = unsafe { CStr::from_ptr(name) };
                    std::ffi::OsStr::from_bytes(name.to_bytes()).into()
                }
                None => self.name.clone(),
            }
        }

        /// An address in the mapping; null when the linker does not say.
        pub(in crate::loader) fn address(&self) -> *const c_void {
            // SAFETY: as above.
            unsafe { self.record.as_ref() }.map_or(core::ptr::null(), |record| record.dynamic)
        }

        /// Opens a file or, for a bare name, what the dynamic linker finds under it.
        ///
        /// # Errors
        /// The dynamic linker's message.
        pub(in crate::loader) fn open(name: &Path) -> Result<Self, String> {
            if let Some(reason) = super::irregular(name) {
                return Err(reason);
            }
            // SAFETY: initialisers of the libraries that this crate opens (NCCL, its extensions,
            // the driver) may run on any thread and do not touch Rust state. A file that is
            // something else is the caller's choice of path.
            let handle = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
            handle.map(|handle| Self::new(handle, name)).map_err(|e| reason(&e))
        }

        /// The library of that name, if the process has it mapped already.
        pub(in crate::loader) fn mapped(name: &Path) -> Option<Self> {
            // SAFETY: RTLD_NOLOAD runs no initialiser.
            let handle =
                unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD) };
            handle.ok().map(|handle| Self::new(handle, name))
        }

        /// Keeps the library mapped for the rest of the process.
        pub(in crate::loader) fn keep(self) {
            // SAFETY: the library is mapped; this only raises its reference count and its flag.
            let kept = unsafe {
                Library::open(Some(&self.name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE)
            };
            if let Ok(kept) = kept {
                std::mem::forget(kept);
            }
            std::mem::forget(self);
        }
    }

    /// The linker's own words; libloading wraps them.
    fn reason(error: &libloading::Error) -> String {
        use std::error::Error as _;
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    }
}

/// Why a name that is there cannot be a library. The dynamic linker, and whoever reads the file,
/// would wait at a pipe for somebody to write to it.
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
pub(super) fn irregular(name: &std::path::Path) -> Option<String> {
    // The dynamic linker searches for a bare name, and not in the working directory.
    name.components().nth(1)?;
    let meta = name.metadata().ok()?;
    let what = if meta.is_dir() { "a folder" } else { "something else" };
    (!meta.is_file()).then(|| format!("expected a regular file, found {what}"))
}
