//! Worlds of ranks whose work runs later.

use nccl_ep::{Comm, Result};
use nccl_ext_cpu::run_ranks;
use nccl_ext_test::worlds::config;

/// Runs `body` on two ranks, for several seeds.
#[track_caller]
pub(crate) fn on_two_ranks(body: impl Fn(&Comm) -> Result<()> + Sync) {
    for seed in 0..8 {
        let ends = run_ranks(2, &config().deferred(seed), |comm| {
            body(&comm)?;
            comm.destroy()?;
            Ok::<_, nccl_ep::Error>(())
        });
        let failures: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    }
}
