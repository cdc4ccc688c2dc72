//! Rules of update, dispatch and combine that are about more than one tensor's shape.

use nccl_ext_core::{DataType, rules};

use crate::enums::{DispatchQuantizationRecipe, PassDir};
use crate::geometry::{EmMode, Geometry};
use crate::mode::Mode;
use crate::tensor::View;

/// What these rules look at.
pub(crate) struct Facts<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) mode: Mode,
    pub(crate) pass: PassDir,
    pub(crate) topk: u64,
    /// The tensor whose rows are tokens: routing at update, input tokens else.
    pub(crate) rows: Option<&'a View>,
    pub(crate) out_tokens: Option<&'a View>,
    pub(crate) out_weights: Option<&'a View>,
    pub(crate) out_idx: Option<&'a View>,
    /// A backward combine's received weight gradients.
    pub(crate) in_weights: Option<&'a View>,
    /// Counters of an update that must share a type.
    pub(crate) counters: [Option<&'a View>; 3],
    pub(crate) recipe: DispatchQuantizationRecipe,
    /// Given and received scales.
    pub(crate) scales: [Option<&'a View>; 2],
}

fn rows(view: &View) -> usize {
    view.shape.first().copied().unwrap_or(0)
}

impl Facts<'_> {
    fn ht(&self) -> bool {
        self.mode.is_high_throughput()
    }

    fn ll(&self) -> bool {
        self.mode.is_low_latency()
    }

    fn tokens(&self) -> u64 {
        self.rows.and_then(|view| view.shape.first()).map_or(0, |extent| *extent as u64)
    }

    fn hidden(&self) -> u64 {
        self.rows.and_then(|view| view.shape.last()).map_or(0, |extent| *extent as u64)
    }

    fn element(&self) -> u64 {
        self.rows.map_or(1, |view| view.data_type().size() as u64)
    }

    fn row_bytes(&self) -> u64 {
        self.hidden().saturating_mul(self.element())
    }

    /// Whether rows are moved as they are, so that kernels work on elements.
    fn plain(&self) -> bool {
        self.recipe == DispatchQuantizationRecipe::None
    }

    fn scale_bytes(&self) -> u64 {
        self.scales[0].map_or(0, |scales| {
            let width = scales.shape.last().map_or(0, |extent| *extent as u64);
            width.saturating_mul(scales.data_type().size() as u64)
        })
    }

    /// The first pointer of a forwarded tensor that is not at a multiple of 16 bytes.
    fn unaligned(&self) -> Option<*mut core::ffi::c_void> {
        let views = [self.rows, self.out_tokens, self.scales[0], self.scales[1]];
        let mut pointers = views.into_iter().flatten().map(|view| view.buffer.ptr);
        pointers.find(|pointer| !(*pointer as usize).is_multiple_of(16))
    }

    /// Elements that one warp moves at once in an LL dispatch.
    fn ll_unit(&self) -> u64 {
        if self.element() == 4 { 128 } else { 256 }
    }

    /// Copies that the HT maps hold for each token.
    fn ht_inner(&self) -> u64 {
        let dup = self.mode == Mode::HighThroughputExpertMajor
            && self.geometry.em_mode != EmMode::LocalPermute;
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

    fn weight_rows(&self) -> u64 {
        self.in_weights.and_then(|view| view.shape.first()).map_or(0, |rows| *rows as u64)
    }

    /// Whether weight gradients end before the token gradients, or exist without them.
    fn gradients_differ(&self) -> bool {
        let (tokens, weights) = (self.tokens(), self.weight_rows());
        self.in_weights.is_some() && (weights < tokens || (tokens == 0) != (weights == 0))
    }

    fn counter_types(&self) -> impl Iterator<Item = DataType> {
        self.counters.iter().flatten().map(|view| view.data_type())
    }

    fn counter_types_differ(&self) -> bool {
        let mut types = self.counter_types();
        let first = types.next();
        types.any(|other| Some(other) != first)
    }

    fn counter_type_names(&self) -> String {
        self.counter_types().map(DataType::name).collect::<Vec<_>>().join(", ")
    }
}

rules! {
    /// Checked by update, after the tensors.
    UPDATE over Facts {
        "update.tokens" on "topk_idx": "a rank dispatches at most the group's maximum"
            ("EP 3.5.2, 4.2", Local)
            |f| f.tokens() > f.geometry.max_tokens
                => (format!("at most {} tokens", f.geometry.max_tokens), f.tokens());
        "update.counter-types" on "layout_info":
            "the counters that one kernel writes have one integer type" ("EP 3.5.2", Local)
            |f| f.counter_types_differ() => ("one of int32 and int64", f.counter_type_names());
    }
}

rules! {
    /// Checked by dispatch, after the tensors.
    DISPATCH over Facts {
        "dispatch.ll-pass" on "config.pass_direction": "low latency has no backward pass"
            ("EP 4.0 #6", Local)
            |f| f.ll() && f.pass != PassDir::Fwd => ("forward", f.pass);
        "dispatch.row-bytes" on "inputs.tokens": "a row fits the group's max_token_bytes"
            ("EP 4.2, 4.5 #1", Local)
            |f| f.row_bytes().saturating_add(f.scale_bytes()) > f.geometry.max_token_bytes
                => (format!("at most {} bytes, scales included", f.geometry.max_token_bytes),
                    f.row_bytes().saturating_add(f.scale_bytes()));
        "dispatch.ll-row-unit" on "inputs.tokens":
            "low latency moves rows of 256 two-byte or 128 four-byte elements at a time"
            ("EP 4.1", Local)
            |f| f.ll() && f.plain()
                && (f.hidden() == 0 || !f.hidden().is_multiple_of(f.ll_unit()))
                => (format!("a hidden size that is a multiple of {}", f.ll_unit()), f.hidden());
        "dispatch.quantized-row-unit" on "inputs.tokens":
            "quantised rows are moved in 16-byte units" ("EP 5.2 #3", Local)
            |f| !f.plain() && (f.row_bytes() == 0 || !f.row_bytes().is_multiple_of(16))
                => ("a multiple of 16 bytes", f.row_bytes());
        "dispatch.scale-row-unit" on "inputs.scales": "scales are moved in 16-byte units"
            ("EP 5.2 #6", Local)
            |f| !f.plain() && (f.scale_bytes() == 0 || !f.scale_bytes().is_multiple_of(16))
                => ("a multiple of 16 bytes", f.scale_bytes());
        "dispatch.quantized-alignment" on "inputs.tokens":
            "quantised tokens and scales lie at multiples of 16 bytes, given and received"
            ("EP 5.2 #5", Local)
            |f| !f.plain() && f.unaligned().is_some()
                => ("addresses at multiples of 16", format!("{:?}", f.unaligned()));
        "dispatch.ht-row-unit" on "inputs.tokens": "high throughput moves rows in 16-byte units"
            ("EP 4.5 #3", Local)
            |f| f.ht() && f.plain() && (f.row_bytes() == 0 || !f.row_bytes().is_multiple_of(16))
                => ("a multiple of 16 bytes", f.row_bytes());
        "dispatch.ht-map-unit" on "max_dispatch_tokens_per_rank":
            "high throughput reads its token maps four entries at a time" ("EP 4.5 #16", Uniform)
            |f| f.ht() && !f.geometry.max_tokens.saturating_mul(f.ht_inner()).is_multiple_of(4)
                => ("max tokens times ranks (or top-k) a multiple of 4",
                    format!("{} x {}", f.geometry.max_tokens, f.ht_inner()));
        "dispatch.ht-emptiness" on "outputs.topk_weights":
            "weights are empty exactly when tokens are" ("EP 4.5 #15", Local)
            |f| f.ht() && f.emptiness_differs()
                => ("both empty or both with rows", "one of each");
        "dispatch.flat-rows" on "outputs.topk_idx":
            "received weights and indices have the same number of rows" ("EP 4.5 #22", Local)
            |f| f.mode == Mode::HighThroughputFlat && f.flat_rows_differ()
                => (format!("{} rows", f.out_weights.map_or(0, rows)),
                    f.out_idx.map_or(0, rows));
    }
}

rules! {
    /// Checked by combine, after the tensors.
    COMBINE over Facts {
        "combine.ll-pass" on "config.pass_direction": "low latency has no backward pass"
            ("EP 4.0", Local)
            |f| f.ll() && f.pass != PassDir::Fwd => ("forward", f.pass);
        "combine.row-bytes" on "inputs.tokens": "a row fits the group's max_token_bytes"
            ("EP 4.4.1, 4.8.1", Local)
            |f| f.row_bytes() > f.geometry.max_token_bytes
                => (format!("at most {} bytes", f.geometry.max_token_bytes), f.row_bytes());
        "combine.ll-row-unit" on "inputs.tokens":
            "low latency combines rows of 512 elements at a time" ("EP 4.4.1", Local)
            |f| f.ll() && (f.hidden() == 0 || !f.hidden().is_multiple_of(512))
                => ("a hidden size that is a multiple of 512", f.hidden());
        "combine.ll-row-limit" on "inputs.tokens":
            "low latency decodes 1024 bytes of a row in each warp" ("EP 4.4.1", Local)
            |f| f.ll() && f.row_bytes() > f.geometry.ll_combine_row_limit()
                => (format!("at most {} bytes", f.geometry.ll_combine_row_limit()),
                    f.row_bytes());
        "combine.ht-row-unit" on "inputs.tokens":
            "high throughput combines rows of 16 bytes and 8 elements at a time"
            ("EP 4.8.1", Local)
            |f| f.ht() && (f.hidden() == 0 || !f.hidden().is_multiple_of(8)
                || !f.row_bytes().is_multiple_of(16))
                => ("a hidden size that is a multiple of 8", f.hidden());
        "combine.bwd-rows" on "inputs.tokens":
            "a backward combine stages weight gradients for the receive budget's rows"
            ("EP 4.8.1", Local)
            |f| f.ht() && f.pass == PassDir::Bwd && f.tokens() > f.geometry.max_recv
                => (format!("at most {} rows", f.geometry.max_recv), f.tokens());
        "combine.bwd-weight-rows" on "inputs.topk_weights":
            "there are weight gradients for every row of token gradients, and none without"
            ("EP 4.8.1 #4", Local)
            |f| f.ht() && f.pass == PassDir::Bwd && f.gradients_differ()
                => (format!("{} rows or more, 0 for 0", f.tokens()), f.weight_rows());
    }
}
