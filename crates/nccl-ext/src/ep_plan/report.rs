//! The answer.

use nccl_ep::plan::{self, Memory};
use nccl_ep::{Algorithm, Error};
use serde::Serialize;

use super::json;
use super::question::{PAIRS, Pair, Question};
use super::refuse;
use crate::failure::InputError;

/// The plan of every pair that was asked for.
#[derive(Debug, Serialize)]
pub struct Report {
    tool: &'static str,
    version: &'static str,
    /// What was asked, with defaults filled in.
    pub asked: Asked,
    /// One answer a pair.
    pub pairs: Vec<PairPlan>,
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

/// The answer for one pair.
#[derive(Debug, Serialize)]
pub struct PairPlan {
    /// The pair.
    #[serde(serialize_with = "json::pair")]
    pub pair: Pair,
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
    Refused(Refusal),
}

/// A rule that a pair breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What is at fault.
    pub argument: &'static str,
    /// The rule.
    pub rule: &'static str,
    /// What would do.
    pub expected: String,
    /// What there is.
    pub found: String,
    /// The rule's name in the table of rules.
    pub name: &'static str,
    /// The section of the EP specification behind it.
    pub source: &'static str,
}

impl PairPlan {
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
    /// Plans every pair that is asked for.
    ///
    /// # Errors
    /// [`InputError`] when the question is at fault, not a pair: each algorithm and layout breaks
    /// the same rule, the receive budget is too small, or a size overflows.
    pub fn new(question: &Question) -> Result<Self, InputError> {
        no_pair_would_do(question)?;
        let plan = |pair| {
            let outcome = match plan::memory(&question.setup(pair)) {
                Ok(memory) => Outcome::Memory(memory),
                Err(error) => Outcome::Refused(of_the_pair(error)?),
            };
            let choice = question.leaves_topk_open(pair).then_some(TOPK_OPEN);
            Ok(PairPlan { pair, choice, outcome })
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
            pairs: question.pairs().map(plan).collect::<Result<_, _>>()?,
        })
    }

    /// One JSON object and a line break.
    #[must_use]
    pub fn json(&self) -> String {
        crate::output::json(self)
    }

    /// Whether high throughput is in it.
    pub(super) fn has_ht(&self) -> bool {
        self.pairs.iter().any(|plan| plan.pair.algorithm == Algorithm::HighThroughput)
    }
}

/// Refuses a question to which every pair, asked for or not, gives the same answer.
fn no_pair_would_do(question: &Question) -> Result<(), InputError> {
    let mut first = None;
    for pair in PAIRS {
        match plan::memory(&question.setup(pair)) {
            Err(Error::Invalid { argument, rule, expected, found, .. }) => {
                let same = first.get_or_insert((argument, rule, expected, found));
                if (same.0, same.1) != (argument, rule) {
                    return Ok(());
                }
            }
            _ => return Ok(()),
        }
    }
    let broken = |(item, rule, expected, found)| Err(refuse(item, rule, expected, found));
    first.map_or(Ok(()), broken)
}

/// A pair's refusal, unless it is the question that is at fault.
fn of_the_pair(error: Error) -> Result<Refusal, InputError> {
    let Error::Invalid { name, argument, rule, expected, found, .. } = error else {
        let rule = "a configuration that can be planned";
        return Err(refuse("--ranks", rule, "one that no error stands against", error.to_string()));
    };
    if argument == "max_recv_tokens_per_rank" {
        return Err(refuse("--max-recv", rule, expected, found));
    }
    if name == "plan.bytes" {
        return Err(refuse(argument, rule, expected, found));
    }
    let source = nccl_ep::rules().find(|row| row.name == name).map_or("", |row| row.source);
    Ok(Refusal { argument, rule, expected, found, name, source })
}
