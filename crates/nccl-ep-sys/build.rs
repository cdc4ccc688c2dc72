//! Says where libnccl_ep lies; see `build/native.rs`.

use std::process::ExitCode;

#[path = "build/native.rs"]
mod native;

fn main() -> ExitCode {
    native::report(&native::Library { name: "libnccl_ep.so.0", folder: "ep" })
}
