//! Which bytes of the outputs a dispatch uses, and when.

use crate::ep::ll::destination::{DispatchDestination, Outputs, RankMajor};
use crate::ep::settings::Settings;
use crate::ep::staging::{DispatchSource, RowShape};
use crate::queue::{self, Clock};
use crate::refusal::Outcome;

impl DispatchDestination {
    /// A dispatch begins to fill the table of ids, and the counters of experts, when it sends
    /// (EP 6.1).
    pub(super) fn declare_start(&self, settings: &Settings) -> Outcome {
        let Settings { ranks, max_tokens, local_experts, .. } = *settings;
        match self.outputs {
            Outputs::ExpertMajor { counters, .. } => {
                queue::write(counters.cast(), local_experts * size_of::<i32>())
            }
            Outputs::RankMajor(RankMajor { ids, .. }) => {
                let entries = ranks * max_tokens * self.shape.topk;
                queue::write(ids.cast(), entries * size_of::<i32>())
            }
        }
    }

    /// Rows are about to be written, as many in each region as `received` says, and what describes
    /// them. Into a window a sender has written its rows itself, in its own order (EP 4.3).
    pub(super) fn declare_received(
        &self,
        settings: &Settings,
        peers: &[&DispatchSource],
        received: &[u32],
    ) -> Outcome {
        self.declare_start(settings)?;
        let RowShape { topk, bytes, scale_bytes } = self.shape;
        match self.outputs {
            Outputs::ExpertMajor { rows, .. } => {
                let stride = settings.ranks * settings.max_tokens;
                for (expert, &count) in received.iter().enumerate() {
                    Rows { first: expert * stride, count }.written(rows, bytes)?;
                    Rows { first: expert * stride, count }.written(self.scales, scale_bytes)?;
                }
            }
            Outputs::RankMajor(RankMajor {
                rows: tokens,
                weights,
                counters,
                direct_rows,
                direct_scales,
                ..
            }) => {
                let stride = settings.max_tokens;
                for (source, (&count, peer)) in received.iter().zip(peers).enumerate() {
                    let rows = Rows { first: source * stride, count };
                    let by_sender = |direct: bool| direct.then_some(&peer.clock);
                    rows.written_by(by_sender(direct_rows), tokens, bytes)?;
                    rows.written_by(by_sender(direct_scales), self.scales, scale_bytes)?;
                    rows.written(weights.cast(), topk * size_of::<f32>())?;
                }
                if !counters.is_null() {
                    queue::write(counters.cast(), settings.ranks * size_of::<i32>())?;
                }
            }
        }
        Ok(())
    }
}

/// Rows of a region of an output.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    count: u32,
}

impl Rows {
    /// The running work writes them.
    fn written(self, output: *mut u8, bytes: usize) -> Outcome {
        self.written_by(None, output, bytes)
    }

    /// The sender of this clock has written them, or else the running work does.
    fn written_by(self, sender: Option<&Clock>, output: *mut u8, bytes: usize) -> Outcome {
        let first = output.wrapping_add(self.first * bytes);
        let bytes = self.count as usize * bytes;
        match sender {
            Some(clock) => queue::write_as(clock, first, bytes),
            None => queue::write(first, bytes),
        }
    }
}
