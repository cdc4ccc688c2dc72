//! The answer.

use nccl_ep::plan::{self, Memory};
use nccl_ep::{Algorithm, Error, Mode};
use serde::Serialize;

use super::command::refuse;
use super::json;
use super::question::Question;
use crate::BrokenRule;
use crate::failure::InputError;

/// The plan of every pair that was asked for.
#[derive(Debug, Serialize)]
pub struct Report {
    tool: &'static str,
    version: &'static str,
    /// What was asked, with defaults filled in.
    pub asked: Asked,
    /// One answer per mode.
    #[serde(rename = "pairs")]
    pub modes: Vec<ModePlan>,
}

/// The question, for JSON.
#[derive(Debug, Serialize)]
pub struct Asked {
    pub(super) model: Option<&'static str>,
    pub(super) hidden: u32,
    pub(super) experts: u32,
    pub(super) topk: u32,
    pub(super) ranks: u32,
    pub(super) local_experts: u32,
    pub(super) tokens_per_rank: u32,
    pub(super) data_type: &'static str,
    pub(super) sms: u32,
    pub(super) ht_receive: HtReceive,
}

/// How high throughput sizes what it receives.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum HtReceive {
    /// For every possible routing.
    Eager {
        /// Why that was taken.
        because: &'static str,
    },
    /// For this many rows.
    Budget {
        /// Rows a rank.
        rows: u32,
    },
}

const EAGER: &str = "the library's own mode without a budget: no routing can overflow it; \
                     --max-recv N plans for N rows instead, which takes less and traps above it";

const TOPK_OPEN: &str = "the group leaves num_topk open, so that it has room for ranks x tokens rows, \
                         not for top-k times as many";

/// The answer for one mode.
#[derive(Debug, Serialize)]
pub struct ModePlan {
    /// The mode.
    #[serde(rename = "pair", serialize_with = "json::mode")]
    pub mode: Mode,
    /// What the group's configuration leaves open, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<&'static str>,
    /// Numbers, or why there are none.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Numbers, or why there are none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Device memory of one rank.
    #[serde(serialize_with = "json::memory")]
    Memory(Memory),
    /// The rule that the library's group, handle, dispatch or combine would break.
    Refused(BrokenRule),
}

impl ModePlan {
    /// The numbers, if there are some.
    #[must_use]
    pub fn memory(&self) -> Option<&Memory> {
        match &self.outcome {
            Outcome::Memory(memory) => Some(memory),
            Outcome::Refused(_) => None,
        }
    }
}

impl Report {
    /// Plans every mode that is asked for.
    ///
    /// # Errors
    /// [`InputError`] when the question is at fault, not a mode: each of them breaks the same rule, the receive budget is too small, or a size overflows.
    pub fn new(question: &Question) -> Result<Self, InputError> {
        no_mode_would_do(question)?;
        let plan = |mode| {
            let outcome = match plan::memory(&question.setup(mode)) {
                Ok(memory) => Outcome::Memory(memory),
                Err(error) => Outcome::Refused(of_the_mode(error)?),
            };
            let choice = question.leaves_topk_open(mode).then_some(TOPK_OPEN);
            Ok(ModePlan { mode, choice, outcome })
        };
        let Question { model, shape, ranks, tokens, sms, .. } = *question;
        Ok(Self {
            tool: "nccl-ext",
            version: env!("CARGO_PKG_VERSION"),
            asked: Asked {
                model,
                hidden: shape.hidden,
                experts: shape.experts,
                topk: shape.topk,
                ranks,
                local_experts: shape.experts / ranks,
                tokens_per_rank: tokens,
                data_type: question.data_type.name(),
                sms,
                ht_receive: question
                    .max_recv
                    .map_or(HtReceive::Eager { because: EAGER }, |rows| HtReceive::Budget { rows }),
            },
            modes: question.modes().map(plan).collect::<Result<_, _>>()?,
        })
    }

    /// One JSON object and a line break.
    #[must_use]
    pub fn json(&self) -> String {
        crate::output::json(self)
    }

    /// Whether high throughput is in it.
    pub(super) fn has_ht(&self) -> bool {
        self.modes.iter().any(|plan| plan.mode.algorithm() == Algorithm::HighThroughput)
    }
}

/// Refuses a question to which every mode, asked for or not, gives the same answer.
fn no_mode_would_do(question: &Question) -> Result<(), InputError> {
    let mut first = None;
    for &mode in Mode::ALL {
        match plan::memory(&question.setup(mode)) {
            Err(Error::Invalid { name, argument, rule, expected, found, .. }) => {
                let same = first.get_or_insert((name, argument, rule, expected, found));
                if (same.0, same.1) != (name, argument) {
                    return Ok(());
                }
            }
            _ => return Ok(()),
        }
    }
    let broken = |(_, item, rule, expected, found)| Err(refuse(item, rule, expected, found));
    first.map_or(Ok(()), broken)
}

/// A mode's refusal, unless it is the question that is at fault.
fn of_the_mode(error: Error) -> Result<BrokenRule, InputError> {
    let broken = BrokenRule::try_from(error).map_err(|error| {
        let rule = "a configuration that can be planned";
        refuse("--ranks", rule, "one that no error stands against", error)
    })?;
    let BrokenRule { name, argument, rule, expected, found, .. } = &broken;
    match (*argument, *name) {
        ("max_recv_tokens_per_rank", _) => Err(refuse("--max-recv", rule, expected, found)),
        (_, "plan.bytes") => Err(refuse(argument, rule, expected, found)),
        _ => Ok(broken),
    }
}
