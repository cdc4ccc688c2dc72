//! Rules of a combine that are about more than one tensor's shape (EP 4.4.1, 4.8.1).

pub(super) mod tensors;
#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

use crate::enums::PassDir;
use crate::geometry::Geometry;
use crate::mode::Mode;
use crate::view::View;

/// Most experts of one rank in a backward combine (EP 8).
pub(crate) const BACKWARD_LOCAL_EXPERTS: u64 = 1024;

/// The step of a combine.
pub(crate) struct StepFacts {
    pub(crate) mode: Mode,
    /// Whether it has dispatched.
    pub(crate) dispatched: bool,
}

rules! {
    /// Checked by [`Step::combine`](crate::Step::combine), before the tensors.
    ORDER over plain StepFacts {
        "combine.after-dispatch" on "step":
            "a low-latency combine returns what a dispatch of the step brought"
            ("EP 2.6, 4.4.1", Uniform)
            |f| f.mode.is_low_latency() && !f.dispatched => ("a dispatch before it", "none");
    }
}

/// A combine whose tensors fit their rows.
pub(crate) struct CombineFacts<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) mode: Mode,
    pub(crate) pass: PassDir,
    pub(crate) tokens: &'a View,
    /// A backward combine's received weight gradients.
    pub(crate) in_weights: Option<&'a View>,
}

impl CombineFacts<'_> {
    fn backward(&self) -> bool {
        self.mode.is_high_throughput() && self.pass == PassDir::Bwd
    }

    fn weight_rows(&self) -> u64 {
        self.in_weights.map_or(0, View::rows)
    }

    /// Whether weight gradients end before the token gradients, or exist without them.
    fn gradients_differ(&self) -> bool {
        let (tokens, weights) = (self.tokens.rows(), self.weight_rows());
        self.in_weights.is_some() && (weights < tokens || (tokens == 0) != (weights == 0))
    }
}

rules! {
    /// Checked by [`Step::combine`](crate::Step::combine), after the tensors.
    RULES over CombineFacts {
        "combine.ll-pass" on "config.pass_direction": "low latency has no backward pass"
            ("EP 4.0", Local)
            |f| f.mode.is_low_latency() && f.pass != PassDir::Fwd => ("forward", f.pass);
        "combine.row-bytes" on "inputs.tokens": "a row fits the group's max_token_bytes"
            ("EP 4.4.1, 4.8.1", Local)
            |f| f.tokens.row_bytes() > f.geometry.max_token_bytes
                => (format!("at most {} bytes", f.geometry.max_token_bytes), f.tokens.row_bytes());
        "combine.ll-row-unit" on "inputs.tokens":
            "low latency combines rows of 512 elements at a time" ("EP 4.4.1", Local)
            |f| f.mode.is_low_latency() && (f.tokens.row_width() == 0 || !f.tokens.row_width().is_multiple_of(512))
                => ("a hidden size that is a multiple of 512", f.tokens.row_width());
        "combine.ll-row-limit" on "inputs.tokens":
            "low latency decodes 1024 bytes of a row in each warp" ("EP 4.4.1", Local)
            |f| f.mode.is_low_latency() && f.tokens.row_bytes() > f.geometry.ll_combine_row_limit()
                => (format!("at most {} bytes", f.geometry.ll_combine_row_limit()),
                    f.tokens.row_bytes());
        "combine.ht-row-unit" on "inputs.tokens":
            "high throughput combines rows of 16 bytes and 8 elements at a time"
            ("EP 4.8.1", Local)
            |f| f.mode.is_high_throughput() && (f.tokens.row_width() == 0 || !f.tokens.row_width().is_multiple_of(8)
                || !f.tokens.row_bytes().is_multiple_of(16))
                => ("a hidden size that is a multiple of 8", f.tokens.row_width());
        "combine.bwd-local-experts" on "config.pass_direction":
            "a backward combine takes at most 1024 experts of a rank" ("EP 8", Local)
            |f| f.backward() && f.geometry.local_experts > BACKWARD_LOCAL_EXPERTS
                => (format!("forward, or at most {BACKWARD_LOCAL_EXPERTS} experts a rank"),
                    format!("{} with {} experts a rank", f.pass, f.geometry.local_experts));
        "combine.bwd-rows" on "inputs.tokens":
            "a backward combine stages weight gradients for the receive budget's rows"
            ("EP 4.8.1", Local)
            |f| f.backward() && f.tokens.rows() > f.geometry.max_recv
                => (format!("at most {} rows", f.geometry.max_recv), f.tokens.rows());
        "combine.bwd-weight-rows" on "inputs.topk_weights":
            "there are weight gradients for every row of token gradients, and none without"
            ("EP 4.8.1 #4", Local)
            |f| f.backward() && f.gradients_differ()
                => (format!("{} rows or more, 0 for 0", f.tokens.rows()), f.weight_rows());
    }
}
