//! What a rank's outputs have to hold, and which of their rows a dispatch writes.

use super::push::{Outputs, RowBytes};
use crate::ep::settings::{EmMode, HandleSettings, Settings};
use crate::ep::tensor::Tensor;
use crate::queue;
use crate::refusal::{FailureClass, Outcome, Refusal, require};

#[derive(Debug, Clone, Copy)]
pub(super) struct Reception {
    pub(super) expert_major: bool,
    pub(super) permute: bool,
    pub(super) drop: bool,
    /// The rows that outputs must have, or `None` in eager mode: as many as are received.
    pub(super) budget: Option<u64>,
    /// Whether the vendor's peers write the token output in place. It does not count its rows
    /// then, and initialises indices and weights up to the budget.
    pub(super) in_place: bool,
    topk: usize,
}

impl Reception {
    pub(super) fn of(settings: &Settings, handle: &HandleSettings, out: &Tensor) -> Self {
        let expert_major = handle.is_expert_major();
        let permute = expert_major && settings.em_mode == EmMode::LocalPermute;
        Self {
            expert_major,
            permute,
            drop: settings.drop,
            budget: (!settings.eager).then_some(settings.max_recv),
            in_place: out.has_window() && !permute,
            topk: handle.topk,
        }
    }

    /// Whether outputs are compared with the rows received, for which the call waits (EP 4.10).
    pub(super) fn is_counted(&self) -> bool {
        self.budget.is_none() || !(self.permute || self.in_place)
    }

    /// Rows that weights and indices must have when so many are received (EP 4.5).
    pub(super) fn weight_rows(&self, received: u64) -> u64 {
        match self.budget {
            Some(budget) if !self.is_counted() => budget,
            _ => received,
        }
    }

    /// Rows of tokens and scales that are written: those of senders, padding, and what is cleared.
    fn written_rows(&self, received: u64) -> u64 {
        match self.budget {
            Some(budget) if self.permute && self.drop => budget,
            _ => received,
        }
    }

    /// Elements of a row of weights.
    pub(super) fn width(&self) -> usize {
        if self.expert_major { 1 } else { self.topk }
    }

    /// Where the call did not count, the budget was compared, which an update never exceeds, but
    /// what somebody wrote into handle memory may.
    pub(super) fn check_room(&self, outputs: &Outputs, received: u64) -> Outcome {
        let (rows, weight_rows) = (self.written_rows(received), self.weight_rows(received));
        require(outputs.rows >= rows && outputs.weight_rows >= weight_rows.max(received), || {
            let rule = "outputs have every row that is received";
            let class = FailureClass::UndefinedBehaviour;
            let expected =
                format_args!("{rows} rows of tokens, {weight_rows} of weights").to_string();
            let found = format_args!("{} and {}", outputs.rows, outputs.weight_rows).to_string();
            Refusal::argument(class, "outputs", rule, expected, found)
        })
    }

    /// The running work, or a peer's at the same time, is about to write the outputs. Peers do so
    /// between the start and the end of this rank's own dispatch (EP 4.11).
    pub(super) fn declare(&self, outputs: &Outputs, bytes: RowBytes, received: u64) -> Outcome {
        let rows = self.written_rows(received) as usize;
        queue::write(outputs.tokens, rows * bytes.tokens)?;
        queue::write(outputs.scales, rows * bytes.scales)?;
        let rows = if self.in_place { self.weight_rows(received) as usize } else { rows };
        let elements = rows * self.width();
        queue::write(outputs.weights.cast(), elements * size_of::<f32>())?;
        if self.expert_major {
            return Ok(());
        }
        queue::write(outputs.ids.cast(), elements * size_of::<i64>())
    }
}
