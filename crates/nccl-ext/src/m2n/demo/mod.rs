//! Weights resharded and compared: `nccl-ext m2n demo`.
//!
//! ```text
//! model    the tensors of a safetensors file
//! cases    how trainers and generators lay them out
//! slices   what a rank must hold, by plain loops over the file's bytes
//! rank     what one rank does; run  all of them, as threads
//! report   the facts, and as JSON; table  for people
//! ```

mod cases;
mod model;
mod rank;
mod report;
mod run;
mod slices;
mod table;
mod tile;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::failure::{Failure, InputError};
use crate::output;
use model::Model;
pub use report::Report;

/// What messages name as their origin, where there is no file.
const COMMAND: &str = "m2n demo";

/// The file that is taken without `--input`, below the root of a checkout.
const DEFAULT: &str = "testdata/minilm_layers_0_1.f16.safetensors";

/// How it runs.
#[derive(Args, Debug, Clone, Default)]
pub struct Arguments {
    /// A safetensors file whose tensors are resharded. Default: inside a checkout of this project,
    /// the weights in testdata/.
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// For tests of this tool: invert a byte that one rank received, which must fail the verdict.
    #[arg(long, hide = true)]
    pub corrupt: bool,
}

/// Reshards and reports. Gives exit code 1 when a verdict fails.
///
/// # Errors
/// [`Failure`] when the file is at fault, or a call fails. A wrong byte is no error but a verdict.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let path = match &arguments.input {
        Some(path) => path.clone(),
        None => default_input()?,
    };
    let model = Model::read(&path)?;
    let report = run::all(&model, arguments.corrupt)?;
    output::print(&if arguments.json { report.json() } else { report.table() })?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Looks for a checkout around the current directory, then around this program.
fn default_input() -> Result<PathBuf, InputError> {
    let places = [std::env::current_dir(), std::env::current_exe()];
    for place in places.iter().flatten() {
        let found = place.ancestors().map(|folder| folder.join(DEFAULT)).find(|it| it.is_file());
        if let Some(path) = found {
            let here = places[0].as_ref().ok();
            let short = here.and_then(|here| path.strip_prefix(here).ok()).map(Path::to_path_buf);
            return Ok(short.unwrap_or(path));
        }
    }
    let rule = "the weights are not in the program, and this is no checkout that has them";
    let expected = format!("a safetensors file, such as {DEFAULT} of the project's repository");
    Err(InputError::new(COMMAND, "--input", rule, expected, "none"))
}
