//! Which bytes of the outputs a dispatch uses, and when.

use crate::ep::ll::destination::{DispatchDestination, Outputs, RankMajor};
use crate::ep::settings::Settings;
use crate::ep::staging::RowShape;
use crate::queue;
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
    /// them.
    pub(super) fn declare_received(&self, settings: &Settings, received: &[u32]) -> Outcome {
        self.declare_start(settings)?;
        let RowShape { topk, bytes, scale_bytes } = self.shape;
        let write = |to: *mut u8, first: usize, count: u32, bytes: usize| {
            queue::write(to.wrapping_add(first * bytes), count as usize * bytes)
        };
        match self.outputs {
            Outputs::ExpertMajor { rows, .. } => {
                let stride = settings.ranks * settings.max_tokens;
                for (expert, &count) in received.iter().enumerate() {
                    write(rows, expert * stride, count, bytes)?;
                    write(self.scales, expert * stride, count, scale_bytes)?;
                }
            }
            Outputs::RankMajor(RankMajor { rows, weights, counters, .. }) => {
                let stride = settings.max_tokens;
                for (source, &count) in received.iter().enumerate() {
                    let weight_bytes = topk * size_of::<f32>();
                    write(rows, source * stride, count, bytes)?;
                    write(self.scales, source * stride, count, scale_bytes)?;
                    write(weights.cast(), source * stride, count, weight_bytes)?;
                }
                if !counters.is_null() {
                    queue::write(counters.cast(), settings.ranks * size_of::<i32>())?;
                }
            }
        }
        Ok(())
    }
}
