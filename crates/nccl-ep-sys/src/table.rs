//! Filling the table.

use core::ffi::c_int;

use nccl_ext_core::backend::{BackendBuilder, ExtensionTable, LibraryInfo};
use nccl_ext_core::loader::{ExtensionSpec, Opened};
use nccl_ext_core::{Error, Result, Version};

use crate::bindings::EpApi;
use crate::jit::JIT;

/// The library's SONAME.
pub const LIBRARY: &str = "libnccl_ep.so.0";

/// The version whose header the bindings were generated from.
const NEEDS: Version = Version::new(0, 2, 0);

/// The oldest NCCL that libnccl_ep runs on.
const NCCL_FLOOR: Version = Version::new(2, 30, 4);

/// What the loader must know of libnccl_ep.
pub const SPEC: ExtensionSpec =
    ExtensionSpec::new(LIBRARY, "NCCL_EP_LIBRARY", "ep", NCCL_FLOOR, attach).compiles_kernels(&JIT);

impl ExtensionTable for EpApi {
    const LIBRARY: &'static str = LIBRARY;
}

nccl_ext_core::extension_functions!(SPEC, "libnccl_ep");

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
    let (table, path) = opened.complete(table, &EpApi::SYMBOLS, NEEDS)?;
    // SAFETY: the table was resolved from an open library.
    let version = unsafe { version(&table)? };
    let info = LibraryInfo::new(LIBRARY, version).at(path);
    Ok(builder.extension(table).library(info))
}
