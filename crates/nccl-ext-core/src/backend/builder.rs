//! Making a backend from tables.

use super::{Backend, ExtensionTable, Hooks, Inner, LibraryInfo};
use crate::driver::DriverApi;
use crate::jit::JitRoots;
use crate::raw::NcclApi;

/// Collects tables; see [`Backend::builder`].
pub struct BackendBuilder(pub(super) Inner);

impl BackendBuilder {
    /// Sets NCCL's functions. Without it every NCCL call returns `ncclInvalidUsage`.
    #[must_use]
    pub fn nccl(mut self, table: NcclApi) -> Self {
        self.0.nccl = table;
        self
    }

    /// Sets the driver's functions.
    #[must_use]
    pub fn driver(mut self, table: DriverApi) -> Self {
        self.0.driver = table;
        self
    }

    /// Adds the table of an extension library.
    #[must_use]
    pub fn extension<T: ExtensionTable>(mut self, table: T) -> Self {
        self.0.extensions.push((T::LIBRARY, Box::leak(Box::new(table))));
        self
    }

    /// Adds a library to what [`Backend::libraries`] reports.
    #[must_use]
    pub fn library(mut self, info: LibraryInfo) -> Self {
        self.0.libraries.push(info);
        self
    }

    /// Says that an extension compiles kernels at run time, for [`Backend::jit_env`].
    #[must_use]
    pub fn jit(mut self, roots: JitRoots) -> Self {
        self.0.jit = Some(roots);
        self
    }

    /// Sets the hooks.
    #[must_use]
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.0.hooks = Some(hooks);
        self
    }

    /// Finishes the backend.
    ///
    /// # Safety
    /// The tables follow the C contracts of the functions whose names they carry, for the rest of
    /// the process: they may be called from any thread, and what they say about memory they read
    /// and write is true of [`MemorySpace`](crate::MemorySpace) `memory`.
    #[must_use]
    pub unsafe fn build(self) -> Backend {
        Backend(Box::leak(Box::new(self.0)))
    }
}

/// What the loader needs beyond what everybody may do.
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
impl BackendBuilder {
    /// Takes over the extensions and libraries of another builder.
    pub(crate) fn absorb(mut self, other: Self) -> Self {
        self.0.extensions.extend(other.0.extensions);
        self.0.libraries.extend(other.0.libraries);
        self
    }

    /// What a backend made of it would report.
    pub(crate) fn into_libraries(self) -> Vec<LibraryInfo> {
        self.0.libraries
    }

    /// The library that was added last.
    pub(crate) fn last_library(&mut self) -> Option<&mut LibraryInfo> {
        self.0.libraries.last_mut()
    }
}
