//! The arguments of `demo`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nccl_ext::demo::native::{self, Load, Provoke, Seat, Start};
use nccl_ext::demo::{self, Options};
use nccl_ext::failure::{Failure, InputError};
use nccl_ext::output;
use nccl_ext::routing::{Recipe, Routing};

/// Ranks of generated routing, unless told otherwise.
const GENERATED_RANKS: usize = 2;

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Where ranks run: as threads on the CPU, or as processes with a GPU each.
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    backend: BackendName,
    /// Deal the tokens and experts to this many ranks. Default: as recorded; 2 for --generate.
    #[arg(long, value_name = "N")]
    ranks: Option<String>,
    /// A safetensors file with `tokens`, `topk_idx` and `topk_weights`, and with tokens_per_rank,
    /// hidden, top_k, ranks and experts in its metadata. Default: recorded text inside the program.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Make up tokens and routing instead: tokens=128,hidden=7168,topk=8,experts=256[,seed=0],
    /// where tokens are those of one rank.
    #[arg(long, value_name = "SIZES", conflicts_with = "input")]
    generate: Option<String>,
    /// Run these alone, of "LL expert-major,LL rank-major,HT flat,HT expert-major".
    #[arg(long, value_name = "LIST")]
    pairs: Option<String>,
    /// Timed rounds, after one to warm up.
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: String,
    /// On GPUs, end ranks that have not finished by then.
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    timeout: String,
    /// Memory that the CPU backend may take for received rows, all ranks together.
    #[arg(long, value_name = "GIB", default_value = "2")]
    cpu_memory: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// For tests of this tool: invert a received byte between dispatch and combine, which must fail
    /// the verdict.
    #[arg(long, hide = true)]
    corrupt: bool,
    /// On GPUs, first make the library throw a C++ exception, then run as always: on the thread
    /// that it came to, or on another one.
    #[arg(long, hide = true, value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "same-thread")]
    provoke_exception: Option<ProvokeName>,
    /// Be this rank of a run on GPUs.
    #[arg(long, hide = true, requires = "rendezvous")]
    rank: Option<usize>,
    /// Where its ranks meet.
    #[arg(long, hide = true, requires = "rank")]
    rendezvous: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendName {
    Cpu,
    Native,
    /// For tests of this tool: the processes of `native`, of which there can be one.
    #[value(hide = true)]
    CpuProcess,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProvokeName {
    SameThread,
    OtherThread,
}

impl DemoArgs {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let timeout = number("--timeout", &self.timeout, 1..=86_400)?;
        let timeout = Duration::from_secs(timeout as u64);
        let rounds = number("--rounds", &self.rounds, 1..=1000)?;
        let load: Option<Load> = match self.backend {
            BackendName::Cpu => None,
            BackendName::Native => Some(nccl_ep_sys::load),
            BackendName::CpuProcess => Some(|| Ok(nccl_ext_cpu::backend())),
        };
        if self.provoke_exception.is_some() && self.backend != BackendName::Native {
            return Err(Failure::Input(InputError {
                file: "demo".into(),
                item: "--provoke-exception",
                rule: "it takes all the memory of a GPU",
                expected: "--backend native".into(),
                found: "a backend on the host".into(),
            }));
        }
        let cpu_gib = number("--cpu-memory", &self.cpu_memory, 1..=65_536)?;
        let (corrupt, speed) = (self.corrupt, load.is_some());
        let mut options = Options { corrupt, rounds, speed, cpu_gib, ..Options::default() };
        if let Some(list) = &self.pairs {
            options.pairs = demo::named(list)?;
        }
        let routing = self.routing()?;
        let Some(load) = load else {
            return report(&demo::run(&routing, &options)?, self.json);
        };
        let (Some(rank), Some(folder)) = (self.rank, self.rendezvous) else {
            // The ranks are told the same, and their numbers.
            let arguments = std::env::args_os().skip(1).collect();
            let start = Start { load, arguments, timeout };
            return report(&native::run(&routing, &options, &start)?, self.json);
        };
        let provoke = self.provoke_exception.map(|name| match name {
            ProvokeName::SameThread => Provoke::SameThread,
            ProvokeName::OtherThread => Provoke::OtherThread,
        });
        let seat = Seat { load, rank, folder, timeout, provoke };
        native::run_seat(&routing, &options, &seat)?;
        Ok(ExitCode::SUCCESS)
    }

    fn routing(&self) -> Result<Routing, InputError> {
        let ranks = self.ranks.as_ref();
        let ranks = ranks.map(|text| number("--ranks", text, 0..=u32::MAX as usize)).transpose()?;
        if let Some(recipe) = &self.generate {
            return Recipe::parse(recipe)?.routing(ranks.unwrap_or(GENERATED_RANKS));
        }
        let routing = match &self.input {
            Some(path) => Routing::read(path)?,
            None => Routing::recorded()?,
        };
        match ranks {
            Some(ranks) => routing.over(ranks),
            None => Ok(routing),
        }
    }
}

fn report(report: &demo::Report, json: bool) -> Result<ExitCode, Failure> {
    output::print(&if json { report.json() } else { report.table() })?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A whole number of an option.
fn number(
    item: &'static str,
    text: &str,
    range: RangeInclusive<usize>,
) -> Result<usize, InputError> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| InputError {
        file: "demo".into(),
        item,
        rule: "the option takes a whole number",
        expected: format!("{} to {}", range.start(), range.end()),
        found: format!("{text:?}"),
    })
}
