//! Filling the table.

use nccl_ext_core::backend::{BackendBuilder, ExtensionTable, LibraryInfo};
use nccl_ext_core::loader::{ExtensionSpec, Opened};
use nccl_ext_core::{Result, Version};

use crate::bindings::{
    M2nApi, NCCL_M2N_MAJOR, NCCL_M2N_MIN_NCCL_VERSION_CODE, NCCL_M2N_MINOR, NCCL_M2N_PATCH,
};
use crate::manifest;

/// The library's SONAME.
pub const LIBRARY: &str = "libnccl_m2n.so";

/// The version whose header the bindings were generated from.
pub const NEEDS: Version = Version::new(NCCL_M2N_MAJOR, NCCL_M2N_MINOR, NCCL_M2N_PATCH);

/// What the loader must know of libnccl_m2n.
pub const SPEC: ExtensionSpec = ExtensionSpec::new(
    LIBRARY,
    "NCCL_M2N_LIBRARY",
    "m2n",
    Version::from_nccl_code(NCCL_M2N_MIN_NCCL_VERSION_CODE),
    attach,
);

impl ExtensionTable for M2nApi {
    const LIBRARY: &'static str = LIBRARY;
}

nccl_ext_core::extension_functions!(SPEC, "libnccl_m2n");

/// Adds a table made by hand to a backend. No function tells libnccl_m2n's version, so the maker
/// of the table says which one it follows; [`NEEDS`] is the one that the bindings were made from.
#[must_use]
pub fn from_table(builder: BackendBuilder, table: M2nApi, version: Version) -> BackendBuilder {
    let info = LibraryInfo::new(LIBRARY, version);
    builder.extension(table).library(info)
}

fn attach(opened: &Opened, builder: BackendBuilder) -> Result<BackendBuilder> {
    // SAFETY: the handle is libnccl_m2n's by its caller's checks, and pinned when accepted.
    let table = unsafe { M2nApi::resolve(|name| opened.symbol(name)) };
    let (table, path) = opened.complete(table, &M2nApi::SYMBOLS, NEEDS)?;
    let version = manifest::version_of(&path).unwrap_or(NEEDS);
    let info = LibraryInfo::new(LIBRARY, version).at(path);
    Ok(builder.extension(table).library(info))
}

#[cfg(test)]
mod tests {
    use nccl_ext_core::raw::ncclResult_t;
    use nccl_ext_core::{Backend, MemorySpace};

    use super::*;

    #[test]
    fn the_floor_is_the_headers() {
        assert_eq!(SPEC.nccl_floor, Version::new(2, 30, 5));
        assert_eq!(NEEDS, Version::new(0, 2, 0));
    }

    #[test]
    fn a_table_made_by_hand_is_found_with_its_version() {
        let builder = Backend::builder("test", MemorySpace::Host);
        let builder = from_table(builder, M2nApi::UNAVAILABLE, NEEDS);
        // SAFETY: the functions of `UNAVAILABLE` touch nothing.
        let backend = unsafe { builder.build() };
        assert_eq!(backend.library(LIBRARY).map(|library| library.version), Some(NEEDS));
        let Ok(table) = backend.extension::<M2nApi>() else { panic!("the table was added") };
        // SAFETY: as above.
        assert_eq!(unsafe { (table.ncclM2nGroupEnd)() }, ncclResult_t::ncclInvalidUsage);
    }

    #[test]
    fn missing_symbols_are_all_named() {
        // SAFETY: no pointer is given.
        let missing = unsafe { M2nApi::resolve(|_| core::ptr::null_mut()) };
        assert_eq!(missing.err().map(|names| names.len()), Some(8));
    }
}
