//! Filling the table.

use core::ffi::c_int;
use std::path::Path;

use nccl_ext_core::backend::{BackendBuilder, ExtensionTable, LibraryInfo};
use nccl_ext_core::loader::{ExtensionSpec, LoadOptions, Opened};
use nccl_ext_core::{Backend, Error, Result, Version};

use crate::bindings::EpApi;

/// The library's SONAME.
pub const LIBRARY: &str = "libnccl_ep.so.0";

/// The version whose header the bindings were generated from.
const NEEDS: Version = Version::new(0, 2, 0);

/// What the loader must know of libnccl_ep.
pub const SPEC: ExtensionSpec =
    ExtensionSpec::new(LIBRARY, "NCCL_EP_LIBRARY", "ep", Version::NCCL_FLOOR_EP, attach)
        .compiles_kernels();

impl ExtensionTable for EpApi {
    const LIBRARY: &'static str = LIBRARY;
}

/// Loads NCCL, the driver and libnccl_ep, from where [`nccl_ext_core::loader`] says.
///
/// # Errors
/// As [`Backend::load`].
pub fn load() -> Result<Backend> {
    Backend::load(&LoadOptions::new(), &[&SPEC])
}

/// As [`load`], with libnccl_ep from this file only.
///
/// # Errors
/// As [`Backend::load`].
pub fn load_from(path: impl AsRef<Path>) -> Result<Backend> {
    Backend::load(&LoadOptions::new().extension(&SPEC, path.as_ref()), &[&SPEC])
}

/// Whether [`load`] would work: everything is found and can be opened, no function is missing, and
/// the versions are accepted. Nothing stays open.
#[must_use]
pub fn is_available() -> bool {
    Backend::probe(&LoadOptions::new(), &[&SPEC]).is_ok()
}

/// Adds a table made by hand to a backend, with the version that its `ncclEpGetVersion` gives.
///
/// # Safety
/// `table.ncclEpGetVersion` can be called now. What the other entries promise is said to
/// [`BackendBuilder::build`].
///
/// # Errors
/// [`Error::Native`] when the version is refused.
pub unsafe fn from_table(builder: BackendBuilder, table: EpApi) -> Result<BackendBuilder> {
    // SAFETY: this function's contract.
    let version = unsafe { version(&table)? };
    let info = LibraryInfo::new(LIBRARY, version);
    Ok(builder.extension(table).library(info))
}

/// # Safety
/// `table.ncclEpGetVersion` can be called.
unsafe fn version(table: &EpApi) -> Result<Version> {
    let mut code: c_int = 0;
    // SAFETY: this function's contract; `code` outlives the call.
    let result = unsafe { (table.ncclEpGetVersion)(&mut code) };
    if !result.is_success() {
        return Err(Error::Native {
            call: "ncclEpGetVersion",
            code: result,
            detail: String::new(),
        });
    }
    Ok(Version::from_extension_code(code))
}

fn attach(opened: &Opened, builder: BackendBuilder) -> Result<BackendBuilder> {
    // SAFETY: the handle is libnccl_ep's by its caller's checks, and pinned when accepted.
    let table = unsafe { EpApi::resolve(|name| opened.symbol(name)) };
    let path = |symbol| opened.file_of(opened.symbol(symbol));
    let table = table.map_err(|symbols| {
        let present = EpApi::SYMBOLS.into_iter().find(|name| !opened.symbol(name).is_null());
        Error::MissingSymbols {
            symbols,
            library: path(present.unwrap_or(c"ncclEpGetVersion")),
            found: None,
            needs: NEEDS,
        }
    })?;
    // SAFETY: the table was resolved from an open library.
    let version = unsafe { version(&table)? };
    let info = LibraryInfo::new(LIBRARY, version).at(path(c"ncclEpGetVersion"));
    Ok(builder.extension(table).library(info))
}
