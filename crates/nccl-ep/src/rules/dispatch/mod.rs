//! Rules of a dispatch that are about more than one tensor's shape (EP 4.0 to 4.3, 4.5, 5.2).

pub(super) mod tensors;
#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

use crate::enums::{DispatchQuantizationRecipe, PassDir};
use crate::geometry::{EmMode, Geometry};
use crate::mode::Mode;
use crate::view::View;

/// A dispatch whose tensors fit their rows.
pub(crate) struct DispatchFacts<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) mode: Mode,
    pub(crate) pass: PassDir,
    pub(crate) topk: u64,
    pub(crate) recipe: DispatchQuantizationRecipe,
    pub(crate) tokens: &'a View,
    pub(crate) out_tokens: Option<&'a View>,
    pub(crate) out_weights: Option<&'a View>,
    pub(crate) out_idx: Option<&'a View>,
    /// Given and received scales.
    pub(crate) scales: [Option<&'a View>; 2],
}

impl DispatchFacts<'_> {
    /// Whether rows are moved as they are, so that kernels work on elements.
    fn as_they_are(&self) -> bool {
        self.recipe == DispatchQuantizationRecipe::None
    }

    fn scale_bytes(&self) -> u64 {
        self.scales[0].map_or(0, View::row_bytes)
    }

    /// The first address of a forwarded tensor that is not at a multiple of 16 bytes.
    fn unaligned(&self) -> Option<usize> {
        let views = [Some(self.tokens), self.out_tokens, self.scales[0], self.scales[1]];
        let mut addresses = views.into_iter().flatten().map(|view| view.buffer.ptr as usize);
        addresses.find(|address| !address.is_multiple_of(16))
    }

    /// Elements that one warp moves at once in an LL dispatch.
    fn ll_unit(&self) -> u64 {
        if self.tokens.data_type().size() == 4 { 128 } else { 256 }
    }

    /// Copies that the HT maps hold for each token.
    fn ht_inner(&self) -> u64 {
        let expert_major = self.mode == Mode::HighThroughputExpertMajor;
        let dup = expert_major && self.geometry.em_mode != EmMode::LocalPermute;
        if dup { self.topk } else { self.geometry.lsa }
    }

    fn emptiness_differs(&self) -> bool {
        let empty = |view: &View| view.shape.contains(&0);
        match (self.out_tokens, self.out_weights) {
            (Some(tokens), Some(weights)) => empty(tokens) != empty(weights),
            _ => false,
        }
    }

    fn flat_rows_differ(&self) -> bool {
        match (self.out_weights, self.out_idx) {
            (Some(weights), Some(idx)) => weights.shape.first() != idx.shape.first(),
            _ => false,
        }
    }
}

rules! {
    /// Checked by [`Step::dispatch`](crate::Step::dispatch), after the tensors.
    RULES over DispatchFacts {
        "dispatch.ll-pass" on "config.pass_direction": "low latency has no backward pass"
            ("EP 4.0 #6", Local)
            |f| f.mode.is_low_latency() && f.pass != PassDir::Fwd => ("forward", f.pass);
        "dispatch.row-bytes" on "inputs.tokens": "a row fits the group's max_token_bytes"
            ("EP 4.2, 4.5 #1", Local)
            |f| f.tokens.row_bytes().saturating_add(f.scale_bytes()) > f.geometry.max_token_bytes
                => (format!("at most {} bytes, scales included", f.geometry.max_token_bytes),
                    f.tokens.row_bytes().saturating_add(f.scale_bytes()));
        "dispatch.ll-row-unit" on "inputs.tokens":
            "low latency moves rows of 256 two-byte or 128 four-byte elements at a time"
            ("EP 4.1", Local)
            |f| f.mode.is_low_latency() && f.as_they_are()
                && (f.tokens.row_width() == 0 || !f.tokens.row_width().is_multiple_of(f.ll_unit()))
                => (format!("a hidden size that is a multiple of {}", f.ll_unit()), f.tokens.row_width());
        "dispatch.quantized-row-unit" on "inputs.tokens":
            "quantized rows are moved in 16-byte units" ("EP 5.2 #3", Local)
            |f| !f.as_they_are() && (f.tokens.row_bytes() == 0 || !f.tokens.row_bytes().is_multiple_of(16))
                => ("a multiple of 16 bytes", f.tokens.row_bytes());
        "dispatch.scale-row-unit" on "inputs.scales": "scales are moved in 16-byte units"
            ("EP 5.2 #6", Local)
            |f| !f.as_they_are() && (f.scale_bytes() == 0 || !f.scale_bytes().is_multiple_of(16))
                => ("a multiple of 16 bytes", f.scale_bytes());
        "dispatch.quantized-alignment" on "inputs.tokens":
            "quantized tokens and scales lie at multiples of 16 bytes, given and received"
            ("EP 5.2 #5", Local)
            |f| f.unaligned().filter(|_| !f.as_they_are())
                => |address| ("addresses at multiples of 16", format!("{address:#x}"));
        "dispatch.ht-row-unit" on "inputs.tokens": "high throughput moves rows in 16-byte units"
            ("EP 4.5 #3", Local)
            |f| f.mode.is_high_throughput() && f.as_they_are() && (f.tokens.row_bytes() == 0 || !f.tokens.row_bytes().is_multiple_of(16))
                => ("a multiple of 16 bytes", f.tokens.row_bytes());
        "dispatch.ht-map-unit" on "max_dispatch_tokens_per_rank":
            "high throughput reads its token maps four entries at a time" ("EP 4.5 #16", Uniform)
            |f| f.mode.is_high_throughput() && !f.geometry.max_tokens.saturating_mul(f.ht_inner()).is_multiple_of(4)
                => ("max tokens times ranks (or top-k) a multiple of 4",
                    format!("{} x {}", f.geometry.max_tokens, f.ht_inner()));
        "dispatch.ht-emptiness" on "outputs.topk_weights":
            "weights are empty exactly when tokens are" ("EP 4.5 #15", Local)
            |f| f.mode.is_high_throughput() && f.emptiness_differs()
                => ("both empty or both with rows", "one of each");
        "dispatch.flat-rows" on "outputs.topk_idx":
            "received weights and indices have the same number of rows" ("EP 4.5 #22", Local)
            |f| f.mode == Mode::HighThroughputFlat && f.flat_rows_differ()
                => (format!("{} rows", f.out_weights.map_or(0, View::rows)),
                    f.out_idx.map_or(0, View::rows));
    }
}
