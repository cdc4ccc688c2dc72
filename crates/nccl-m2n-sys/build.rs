//! Says where libnccl_m2n lies; see `build/native.rs`.

use std::process::ExitCode;

#[path = "build/native.rs"]
mod native;

fn main() -> ExitCode {
    native::report(&native::Library { name: "libnccl_m2n.so", folder: "m2n" })
}
