//! The arguments of `demo`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nccl_ep::Mode;

use super::native::{Load, Provoke, RankProcess, Start};
use super::options::Options;
use crate::failure::InputError;
use crate::routing::{Recipe, Routing};

/// What messages name, where other commands name a file.
const COMMAND: &str = "demo";

/// Ranks of generated routing, unless told otherwise.
const GENERATED_RANKS: usize = 2;

/// How to run it.
#[derive(Args, Debug)]
pub struct Arguments {
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
    /// On the CPU, run the work of a call after it has returned, as a GPU does, with delays that
    /// this number decides. Two uses of memory that nothing orders end the run with an error.
    #[arg(long, value_name = "SEED")]
    deferred: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    pub(super) json: bool,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendName {
    Cpu,
    Native,
    /// For tests of this tool: the processes of `native`, of which there can be one.
    #[value(hide = true)]
    CpuProcess,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProvokeName {
    SameThread,
    OtherThread,
}

impl Arguments {
    /// Gives the backend of ranks that are processes; nothing where ranks are threads.
    pub(super) fn load(&self) -> Option<Load> {
        match self.backend {
            BackendName::Cpu => None,
            BackendName::Native => Some(nccl_ep_sys::load),
            BackendName::CpuProcess => Some(|| Ok(nccl_ext_cpu::backend())),
        }
    }

    /// How the demo runs.
    ///
    /// # Errors
    /// [`InputError`] for the first argument that is at fault.
    pub(super) fn options(&self) -> Result<Options, InputError> {
        self.timeout()?;
        let rounds = number("--rounds", &self.rounds, 1..=1000)?;
        if self.provoke_exception.is_some() && self.backend != BackendName::Native {
            let (item, rule) = ("--provoke-exception", "it takes all the memory of a GPU");
            let found = "a backend on the host";
            return Err(InputError::new(COMMAND, item, rule, "--backend native", found));
        }
        if self.deferred.is_some() && self.backend != BackendName::Cpu {
            let (item, rule) = ("--deferred", "it is the CPU that puts off its work");
            let found = "a backend that does not";
            return Err(InputError::new(COMMAND, item, rule, "--backend cpu", found));
        }
        let deferred = self.deferred;
        let cpu_gib = number("--cpu-memory", &self.cpu_memory, 1..=65_536)?;
        let (corrupt, speed) = (self.corrupt, self.load().is_some());
        let mut options =
            Options { corrupt, rounds, speed, deferred, cpu_gib, ..Options::default() };
        if let Some(list) = &self.pairs {
            options.modes = modes(list)?;
        }
        Ok(options)
    }

    fn timeout(&self) -> Result<Duration, InputError> {
        let seconds = number("--timeout", &self.timeout, 1..=86_400)?;
        Ok(Duration::from_secs(seconds as u64))
    }

    /// How to start the ranks as processes.
    pub(super) fn start(&self, load: Load) -> Result<Start, InputError> {
        let arguments = std::env::args_os().skip(1).collect();
        Ok(Start { load, arguments, timeout: self.timeout()? })
    }

    /// The rank that this process is to be, if it is one.
    pub(super) fn rank_process(&self, load: Load) -> Result<Option<RankProcess>, InputError> {
        let (Some(rank), Some(folder)) = (self.rank, self.rendezvous.clone()) else {
            return Ok(None);
        };
        let provoke = self.provoke_exception.map(|name| match name {
            ProvokeName::SameThread => Provoke::SameThread,
            ProvokeName::OtherThread => Provoke::OtherThread,
        });
        Ok(Some(RankProcess { load, rank, folder, timeout: self.timeout()?, provoke }))
    }

    /// What is dispatched.
    pub(super) fn routing(&self) -> Result<Routing, InputError> {
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

/// The modes that a list such as `LL expert-major, HT flat` names, in the library's order.
fn modes(list: &str) -> Result<Vec<Mode>, InputError> {
    let names: Vec<_> = list.split(',').map(str::trim).collect();
    let is = |name: &str, mode: &Mode| mode.to_string().eq_ignore_ascii_case(name);
    let unknown = |name: &&&str| !Mode::ALL.iter().any(|mode| is(name, mode));
    if let Some(name) = names.iter().find(unknown) {
        let rule = "a pair is an algorithm with a layout";
        let known: Vec<_> = Mode::ALL.iter().map(Mode::to_string).collect();
        let found = format!("{name:?}");
        return Err(InputError::new(COMMAND, "--pairs", rule, known.join(", "), found));
    }
    let named = |mode: &&Mode| names.iter().any(|name| is(name, mode));
    Ok(Mode::ALL.iter().filter(named).copied().collect())
}

/// A whole number of an option.
fn number(
    item: &'static str,
    text: &str,
    range: RangeInclusive<usize>,
) -> Result<usize, InputError> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let rule = "the option takes a whole number";
        let expected = format!("{} to {}", range.start(), range.end());
        InputError::new(COMMAND, item, rule, expected, format!("{text:?}"))
    })
}
