//! The vendor's libraries and headers: what a staged tree holds, and how one is made.

pub(crate) mod arch;
mod cuda_marks;
pub(crate) mod elf;
pub(crate) mod good_library;
pub(crate) mod library_kind;
pub(crate) mod manifest;
pub(crate) mod stage;

/// The release whose headers the checked-in bindings are made from, as `--from` takes it.
pub(crate) const RELEASE: &str = "pypi:0.1.0";

/// Environment variable that makes the lack of the vendor's libraries an error.
pub(crate) const REQUIRE: &str = "NCCL_EXTENSIONS_REQUIRE_NATIVE_LIBS";
