//! The library's group is the thread's that began it.

use nccl_m2n::{Result, Runtime};

fn record_elsewhere(runtime: &Runtime) -> Result<()> {
    runtime.group(|group| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = &group;
            });
        });
        Ok(())
    })
}

fn main() {}
