//! How the demo runs.

use nccl_ep::Mode;

/// GiB for received rows on the CPU backend, all ranks together, unless told otherwise.
const CPU_GIB: usize = 2;

/// How the demo runs.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Inverts a byte that one rank received, between dispatch and combine: the verdict must fail.
    pub corrupt: bool,
    /// The modes to run.
    pub modes: Vec<Mode>,
    /// Rounds before the timed ones.
    pub warm_up: usize,
    /// Rounds whose times count.
    pub rounds: usize,
    /// Whether calls are timed alone, too.
    pub speed: bool,
    /// On the CPU backend, run work after its calls have returned, as this seed says.
    pub deferred: Option<u64>,
    /// GiB that the CPU backend may take for received rows, all ranks together.
    pub cpu_gib: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            corrupt: false,
            modes: Mode::ALL.to_vec(),
            warm_up: 1,
            rounds: 5,
            speed: false,
            deferred: None,
            cpu_gib: CPU_GIB,
        }
    }
}
