//! The CPU backend: ranks are threads of this process.

use nccl_ep::Mode;
use nccl_ext_cpu::CpuConfig;

use super::options::Options;
use super::outcome::Outcome;
use super::report::{ModeReport, Report};
use super::{limits, modes};
use crate::cpu_ranks;
use crate::failure::Failure;
use crate::routing::Routing;

/// Runs every mode that is asked for.
///
/// # Errors
/// [`Failure`] when the routing breaks a rule of the demo or of the API, or a call fails. A result
/// that is wrong is no error but a verdict in the report.
pub(super) fn run(routing: &Routing, options: &Options) -> Result<Report, Failure> {
    limits::check_cpu(routing, options)?;
    let mode = |&mode: &Mode| {
        let outcomes = run_mode(mode, routing, options)?;
        Ok(ModeReport::new(mode, routing, options, &outcomes, None))
    };
    let modes: Result<_, Failure> = options.modes.iter().map(mode).collect();
    let backend = match options.deferred {
        None => nccl_ext_cpu::backend(),
        Some(_) => nccl_ext_cpu::deferred_backend(),
    };
    Ok(Report::new(backend, routing, options, modes?))
}

/// One mode on all ranks; gives what each saw.
pub(super) fn run_mode(
    mode: Mode,
    routing: &Routing,
    options: &Options,
) -> Result<Vec<Outcome>, Failure> {
    let config = match options.deferred {
        None => CpuConfig::new(),
        Some(seed) => CpuConfig::new().deferred(seed),
    };
    cpu_ranks::run(routing.sizes.ranks, &routing.name, &mode.to_string(), &config, |comm| {
        modes::run(mode, comm, routing, options)
    })
}
