//! A runtime cannot be finalised while it records a group.

use nccl_m2n::{Result, Runtime};

fn end(runtime: Runtime) -> Result<()> {
    runtime.group(|_| {
        runtime.finalize()?;
        Ok(())
    })
}

fn main() {}
