//! The native backend: ranks are processes, each with a GPU of its own.
//!
//! The program starts itself once for each rank. The ranks meet through files in a folder that is
//! made for this run, and leave their results there.

mod exception;
mod folder;
mod launch;
mod rank_process;
mod results;
mod run_rank;

pub(super) use rank_process::{Load, Provoke, RankProcess};
pub(super) use run_rank::run_rank_process;

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use nccl_ext_core::{Backend, device};

use self::folder::Folder;
use super::options::Options;
use super::report::{ModeReport, Report};
use super::{cpu, limits};
use crate::failure::{Failure, InputError};
use crate::routing::Routing;

/// How to start the ranks.
#[derive(Debug)]
pub(super) struct Start {
    /// What the ranks run on, asked here for what there is.
    pub(super) load: Load,
    /// The arguments with which this program becomes a rank, but for its number and the folder.
    pub(super) arguments: Vec<OsString>,
    /// When ranks that have not finished are ended.
    pub(super) timeout: Duration,
}

/// Runs the modes on GPUs, and on the CPU backend for comparison.
///
/// # Errors
/// [`Failure`] when the libraries or GPUs are not there, the routing breaks a rule, or a rank fails.
/// A result that is wrong is no error but a verdict in the report.
pub(super) fn run(routing: &Routing, options: &Options, start: &Start) -> Result<Report, Failure> {
    let backend = (start.load)().map_err(|error| Failure::Load(Box::new(error)))?;
    options.modes.iter().try_for_each(|mode| limits::fits_gpu(routing, *mode))?;
    check_devices(routing, backend)?;
    let folder = Folder::create().map_err(|error| Failure::folder("made", &error))?;
    launch::run(commands(routing, backend, start, &folder)?, start.timeout)?;

    let mut modes = Vec::new();
    for (number, &mode) in options.modes.iter().enumerate() {
        let ranks = 0..routing.sizes.ranks;
        let outcomes = ranks.map(|rank| results::read(folder.path(), rank, number));
        let outcomes: Vec<_> = outcomes.collect::<Result<_, _>>()?;
        let cpu_gib = options.cpu_gib;
        let only = vec![mode];
        let once = Options { warm_up: 0, rounds: 1, modes: only, cpu_gib, ..Options::default() };
        let cpu = match limits::check_cpu(routing, &once) {
            Ok(()) => Ok(cpu::run_mode(mode, routing, &once)?),
            Err(error) => Err(error.to_string()),
        };
        let cpu = cpu.as_deref().map_err(Clone::clone);
        modes.push(ModeReport::new(mode, routing, options, &outcomes, Some(cpu)));
    }
    Ok(Report::new(backend, routing, options, modes))
}

/// Every rank has a GPU of its own.
fn check_devices(routing: &Routing, backend: Backend) -> Result<(), Failure> {
    let devices = device::count(backend).map_err(|error| Failure::Load(Box::new(error)))?;
    let ranks = routing.sizes.ranks;
    if ranks <= devices {
        return Ok(());
    }
    let (rule, most) = ("every rank has a GPU of its own", format!("at most {devices}"));
    Err(Failure::Input(InputError::new(&routing.name, "--ranks", rule, most, ranks)))
}

/// This program again, once for each rank.
fn commands(
    routing: &Routing,
    backend: Backend,
    start: &Start,
    folder: &Folder,
) -> Result<Vec<Command>, Failure> {
    let program = std::env::current_exe().map_err(Failure::Output)?;
    let environment = backend.jit_env();
    let missing = environment.iter().flat_map(|environment| environment.missing());
    let command = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(&start.arguments).arg("--rank").arg(rank.to_string());
        command.arg("--rendezvous").arg(folder.path());
        // What the run-time compiler needs and nobody has set.
        for variable in missing.clone() {
            if let Some(value) = &variable.value {
                command.env(variable.name, value);
            }
        }
        command
    };
    Ok((0..routing.sizes.ranks).map(command).collect())
}
