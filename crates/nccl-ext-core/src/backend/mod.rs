//! A backend: the function tables that everything above calls through.

mod abandoned;
mod builder;
mod driver_calls;
mod library;
mod per_device;
mod text;

use std::any::Any;
use std::fmt;

pub use self::builder::BackendBuilder;
pub use self::library::{ExtensionTable, LibraryInfo};
pub use self::text::text;
use crate::driver::DriverApi;
use crate::error::{Error, Result};
use crate::guard::{self, Foreign};
use crate::jit::{JitEnv, JitRoots};
use crate::raw::{NcclApi, ncclComm_t, ncclResult_t};

/// Where a backend's tensors live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemorySpace {
    /// Ordinary host memory.
    Host,
    /// GPU memory.
    Device,
}

impl MemorySpace {
    /// Whether calls on this memory finish before they return.
    #[must_use]
    pub fn is_synchronous(self) -> bool {
        self == Self::Host
    }
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host memory",
            Self::Device => "device memory",
        })
    }
}

/// What a backend can say beyond C return codes. Both calls concern the calling thread or rank.
#[derive(Debug, Clone, Copy)]
pub struct Hooks {
    /// Takes the error behind the last failed call of this thread.
    pub take_error: fn() -> Option<Error>,
    /// Tells the peers of `comm`'s rank that it will not come to the next collective.
    ///
    /// # Safety
    /// `comm` is a live communicator of this backend.
    pub fail_rank: unsafe fn(comm: ncclComm_t, error: &Error),
}

struct Inner {
    name: &'static str,
    memory: MemorySpace,
    nccl: NcclApi,
    driver: DriverApi,
    extensions: Vec<(&'static str, &'static (dyn Any + Send + Sync))>,
    libraries: Vec<LibraryInfo>,
    hooks: Option<Hooks>,
    jit: Option<JitRoots>,
    contexts: per_device::PerDevice,
    id_kernels: per_device::PerDevice,
    abandoned: abandoned::Abandoned,
}

/// A `Copy` handle to the tables of NCCL, the driver and the extension libraries.
///
/// Communicators remember their backend, and everything made from a communicator uses it. Several
/// backends live side by side in one process; two are equal when they are the same one.
///
/// A backend is never freed: its tables are called from drops whose order nobody controls.
#[derive(Clone, Copy)]
pub struct Backend(&'static Inner);

impl Backend {
    /// Starts a backend from tables.
    #[must_use]
    pub fn builder(name: &'static str, memory: MemorySpace) -> BackendBuilder {
        BackendBuilder(Inner {
            name,
            memory,
            nccl: NcclApi::UNAVAILABLE,
            driver: DriverApi::NONE,
            extensions: Vec::new(),
            libraries: Vec::new(),
            hooks: None,
            jit: None,
            contexts: per_device::PerDevice::new(),
            id_kernels: per_device::PerDevice::new(),
            abandoned: abandoned::Abandoned::new(),
        })
    }

    /// Streams that something else owns, and whose work nobody waits for any more.
    pub(crate) fn abandoned(self) -> &'static abandoned::Abandoned {
        &self.0.abandoned
    }

    /// The name its maker gave it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Where tensors must live.
    #[must_use]
    pub fn memory(self) -> MemorySpace {
        self.0.memory
    }

    /// NCCL's functions.
    #[must_use]
    pub fn nccl(self) -> &'static NcclApi {
        &self.0.nccl
    }

    /// The driver's functions.
    #[must_use]
    pub fn driver(self) -> &'static DriverApi {
        &self.0.driver
    }

    /// The table of an extension library.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when this backend was made without it.
    pub fn extension<T: ExtensionTable>(self) -> Result<&'static T> {
        self.0.extensions.iter().find_map(|(_, table)| table.downcast_ref::<T>()).ok_or_else(|| {
            let has: Vec<_> = self.0.extensions.iter().map(|(name, _)| *name).collect();
            Error::Unsupported {
                feature: T::LIBRARY,
                library: format!("backend {}", self.0.name),
                found: if has.is_empty() { "no extension".into() } else { has.join(", ") },
                needs: format!("a backend made with {}", T::LIBRARY),
            }
        })
    }

    /// The primary contexts of its devices.
    pub(crate) fn contexts(self) -> &'static per_device::PerDevice {
        &self.0.contexts
    }

    /// The kernel that looks at expert ids, on each device where it was loaded.
    pub(crate) fn id_kernels(self) -> &'static per_device::PerDevice {
        &self.0.id_kernels
    }

    /// The libraries behind it, NCCL first.
    #[must_use]
    pub fn libraries(self) -> &'static [LibraryInfo] {
        &self.0.libraries
    }

    /// The library of that name, if it is behind this backend.
    #[must_use]
    pub fn library(self, name: &str) -> Option<&'static LibraryInfo> {
        self.0.libraries.iter().find(|library| library.name == name)
    }

    /// What it offers beyond C return codes.
    #[must_use]
    pub fn hooks(self) -> Option<Hooks> {
        self.0.hooks
    }

    /// What its run-time compiler goes by: the libraries that it belongs to. `None` for a backend
    /// that compiles nothing, as the CPU backend and test stubs.
    #[must_use]
    pub fn jit_roots(self) -> Option<&'static JitRoots> {
        self.0.jit.as_ref()
    }

    /// Looks for what its run-time compiler needs, now. `None` as for
    /// [`jit_roots`](Self::jit_roots).
    #[must_use]
    pub fn jit_env(self) -> Option<JitEnv> {
        self.0.jit.as_ref().map(JitEnv::find)
    }

    /// Turns the result of a native call into `Ok` or the best error there is, on the thread that
    /// made the call and right after it.
    ///
    /// # Safety
    /// `comm` is NULL or a live communicator of this backend.
    pub unsafe fn check(
        self,
        call: &'static str,
        code: ncclResult_t,
        comm: ncclComm_t,
    ) -> Result<()> {
        // SAFETY: the caller says that the communicator lives or is NULL, which NCCL allows; its
        // text stays until its next error on this thread.
        let last_error = || Ok(unsafe { text((self.0.nccl.ncclGetLastError)(comm)) });
        self.check_with(call, code, last_error)
    }

    /// As [`check`](Self::check), for a library that has words of its own for its last error.
    ///
    /// # Errors
    /// The error behind the code; what `last_error` reports when it cannot be asked.
    pub fn check_with(
        self,
        call: &'static str,
        code: ncclResult_t,
        last_error: impl FnOnce() -> Result<String>,
    ) -> Result<()> {
        if code.is_success() {
            return Ok(());
        }
        match self.0.hooks.and_then(|hooks| (hooks.take_error)()) {
            Some(error) => Err(error),
            None => Err(Error::Native { call, code, detail: last_error()? }),
        }
    }

    /// Makes a native call through the [`guard`] and turns what comes back into the best error, on
    /// the call's thread. `last_error` asks the library for its words.
    ///
    /// # Errors
    /// [`Error::Exception`] for a C++ exception, else as [`check_with`](Self::check_with).
    ///
    /// # Safety
    /// As for the call, except that C++ exceptions may leave it.
    pub unsafe fn call<F>(
        self,
        name: &'static str,
        function: F,
        arguments: F::Arguments,
        last_error: impl FnOnce() -> Result<String>,
    ) -> Result<()>
    where
        F: Foreign<Output = ncclResult_t>,
    {
        // SAFETY: this function's contract.
        let code = unsafe { guard::call(name, function, arguments) }?;
        self.check_with(name, code, last_error)
    }
}

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for Backend {}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("name", &self.0.name)
            .field("memory", &self.0.memory)
            .field("libraries", &self.0.libraries)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(u32);
    impl ExtensionTable for Table {
        const LIBRARY: &'static str = "libtable.so";
    }
    struct Other;
    impl ExtensionTable for Other {
        const LIBRARY: &'static str = "libother.so";
    }

    #[test]
    fn extensions_are_found_by_type_and_absence_is_named() {
        let builder = Backend::builder("test", MemorySpace::Host).extension(Table(7));
        // SAFETY: no native call is made through it.
        let backend = unsafe { builder.build() };
        assert_eq!(backend.extension::<Table>().map(|table| table.0).ok(), Some(7));
        let Err(error) = backend.extension::<Other>() else { panic!("not there") };
        assert_eq!(
            error.to_string(),
            "libother.so is not offered by backend test (libtable.so); it needs a backend made \
             with libother.so"
        );
    }

    #[test]
    fn a_code_comes_with_the_librarys_words_unless_the_backend_knows_better() {
        fn known() -> Option<Error> {
            Some(Error::RankGone { reason: "it left".into() })
        }
        unsafe fn tell(_: ncclComm_t, _: &Error) {}
        let builder = || Backend::builder("test", MemorySpace::Host);
        // SAFETY: no native call is made through either.
        let (plain, hooked) = unsafe {
            let hooks = Hooks { take_error: known, fail_rank: tell };
            (builder().build(), builder().hooks(hooks).build())
        };
        let code = ncclResult_t::ncclInvalidUsage;
        let said = |backend: Backend| {
            let checked = backend.check_with("ncclAnything", code, || Ok("its words".into()));
            checked.unwrap_err().to_string()
        };
        assert_eq!(said(plain), "ncclAnything returned ncclInvalidUsage (5): its words");
        assert_eq!(said(hooked), "it left");
        let never = || panic!("it was not asked for");
        assert!(hooked.check_with("ncclAnything", ncclResult_t::ncclSuccess, never).is_ok());
    }

    unsafe extern "C" fn words(comm: ncclComm_t) -> *const core::ffi::c_char {
        assert!(comm.is_null());
        c"no memory left".as_ptr()
    }

    #[test]
    fn a_failed_call_without_a_communicator_has_nccls_words() {
        let nccl = NcclApi { ncclGetLastError: words, ..NcclApi::UNAVAILABLE };
        let builder = Backend::builder("test", MemorySpace::Host).nccl(nccl);
        // SAFETY: the table keeps the contract of the one function that is called.
        let backend = unsafe { builder.build() };
        let code = ncclResult_t::ncclSystemError;
        // SAFETY: no communicator is given.
        let failed = unsafe { backend.check("ncclMemAlloc", code, core::ptr::null_mut()) };
        let expected = "ncclMemAlloc returned ncclSystemError (2): no memory left";
        assert_eq!(failed.unwrap_err().to_string(), expected);
    }

    #[test]
    fn two_backends_are_two() {
        // SAFETY: no native call is made through either.
        let [a, b] =
            [(); 2].map(|()| unsafe { Backend::builder("test", MemorySpace::Host).build() });
        assert_eq!(a, a);
        assert_ne!(a, b);
    }
}
