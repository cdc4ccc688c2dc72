//! Tensors of a combine (EP 4.4.1, 4.8.1, 4.8.6, 4.17).

use crate::enums::PassDir::{Bwd, Fwd};
use crate::rules::tensor_row::Call::Combine;
use crate::rules::tensor_row::extents::Dim::{AtLeast, Hidden, Is};
use crate::rules::tensor_row::extents::Extent::{
    self, LocalExperts, MaxTokens, Ranks, RanksTimesMaxTokens, StepRows, TopK,
};
use crate::rules::tensor_row::tensors;

tensors! {
    /// Checked by [`Step::combine`](crate::Step::combine).
    TABLE {
        "combine.ll-em-tokens" on "inputs.tokens" in Combine(Fwd), LL_EM:
            InTokens Required [Is(LocalExperts), Is(RanksTimesMaxTokens), Hidden] Token,
            "low-latency expert-major combines [local experts, ranks x max tokens, hidden]"
            ("EP 4.4.1");
        "combine.ll-rm-tokens" on "inputs.tokens" in Combine(Fwd), LL_RM:
            InTokens Required [Is(Ranks), Is(MaxTokens), Hidden] Token,
            "low-latency rank-major combines [ranks, max tokens, hidden]" ("EP 4.4.1");
        "combine.ht-tokens" on "inputs.tokens" in Combine(Fwd), HT:
            InTokens Required [AtLeast(StepRows), Hidden] Token,
            "high throughput combines as many rows as the dispatch received" ("EP 4.8.1");
        "combine.weights" on "inputs.topk_weights" in Combine(Fwd), ALL:
            InWeights Forbidden [] Float32,
            "a forward combine takes no received weights" ("EP 4.8.1 #6");
        "combine.out-tokens" on "outputs.tokens" in Combine(Fwd), ALL:
            OutTokens Required [Is(Extent::Tokens), Is(Extent::Hidden)] SameAsTokens,
            "combined tokens are [tokens of the update, hidden], of the input's type" ("EP 4.4.1");
        "combine.ll-em-routing-weights" on "inputs.routing_weights" in Combine(Fwd), LL_EM:
            RoutingWeights Required [Is(Extent::Tokens), Is(TopK)] Float32,
            "low-latency expert-major applies the routing weights [tokens, top-k]" ("EP 4.4.1");
        "combine.routing-weights" on "inputs.routing_weights" in Combine(Fwd), WEIGHTED:
            RoutingWeights Forbidden [] Float32,
            "here the caller applies the routing weights before combine" ("EP 4.17");
        "combine.out-weights" on "outputs.topk_weights" in Combine(Fwd), ALL:
            OutWeights Forbidden [] Float32,
            "only a backward combine gives weight gradients" ("EP 4.8.1");

        "combine.bwd-tokens" on "inputs.tokens" in Combine(Bwd), HT:
            InTokens Required [AtLeast(StepRows), Hidden] Token,
            "a backward combine takes as many rows as were received" ("EP 4.8.6");
        "combine.bwd-flat-weights" on "inputs.topk_weights" in Combine(Bwd), FLAT:
            InWeights Required [AtLeast(StepRows), Is(TopK)] Float32,
            "flat weight gradients are [rows, top-k]" ("EP 4.8.1 #5");
        "combine.bwd-em-weights" on "inputs.topk_weights" in Combine(Bwd), HT_EM:
            InWeights Required [AtLeast(StepRows)] Float32,
            "expert-major weight gradients are one a row" ("EP 4.8.1 #5");
        "combine.bwd-out-tokens" on "outputs.tokens" in Combine(Bwd), HT:
            OutTokens Required [Is(Extent::Tokens), Is(Extent::Hidden)] SameAsTokens,
            "combined gradients are [tokens of the update, hidden]" ("EP 4.8.6");
        "combine.bwd-out-weights" on "outputs.topk_weights" in Combine(Bwd), HT:
            OutWeights Required [Is(Extent::Tokens), Is(TopK)] Float32,
            "weight gradients come back as [tokens, top-k]" ("EP 4.8.1 #3");
        "combine.bwd-routing-weights" on "inputs.routing_weights" in Combine(Bwd), HT:
            RoutingWeights Forbidden [] Float32,
            "a backward combine applies no routing weights" ("EP 4.8.6");
    }
}
