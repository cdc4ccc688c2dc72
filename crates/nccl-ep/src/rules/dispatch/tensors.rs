//! Tensors of a dispatch (EP 4.2, 4.3, 4.5, 4.9, 4.17, 5.2).

use crate::enums::PassDir::{Bwd, Fwd};
use crate::rules::tensor_row::Call::Dispatch;
use crate::rules::tensor_row::extents::Dim::{self, AtLeast, Hidden, Is};
use crate::rules::tensor_row::extents::Extent::{
    self, LocalExperts, MaxTokens, OutRows, Ranks, RanksTimesMaxTokens, RecvRows, TopK,
};
use crate::rules::tensor_row::tensors;

tensors! {
    /// Checked by [`Step::dispatch`](crate::Step::dispatch).
    TABLE {
        "dispatch.tokens" on "inputs.tokens" in Dispatch(Fwd), ALL:
            InTokens Required [Is(Extent::Tokens), Hidden] Token,
            "tokens are [tokens of the update, hidden]" ("EP 4.0, 4.2") when None;
        "dispatch.quantized-tokens" on "inputs.tokens" in Dispatch(Fwd), ALL:
            InTokens Required [Is(Extent::Tokens), Hidden] AnyFloat,
            "quantized tokens are [tokens of the update, hidden]" ("EP 5.2 #2") when Fwd;
        "dispatch.no-scales" on "inputs.scales" in Dispatch(Fwd), ALL:
            InScales Forbidden [] Float32,
            "without a recipe there are no scales" ("EP 4.0") when None;
        "dispatch.no-out-scales" on "outputs.scales" in Dispatch(Fwd), ALL:
            OutScales Forbidden [] Float32,
            "without a recipe no scales are received" ("EP 4.0") when None;
        "dispatch.scales" on "inputs.scales" in Dispatch(Fwd), ALL:
            InScales Required [Is(Extent::Tokens), Dim::Scales] Scale,
            "scales are [tokens, scales a token]" ("EP 5.2 #6") when Fwd;
        "dispatch.ll-em-out-scales" on "outputs.scales" in Dispatch(Fwd), LL_EM:
            OutScales Required [Is(LocalExperts), Is(RanksTimesMaxTokens), Is(Extent::ScaleWidth)]
            SameAsScales,
            "received scales follow received tokens slot by slot" ("EP 5.2 #8") when Fwd;
        "dispatch.ll-rm-out-scales" on "outputs.scales" in Dispatch(Fwd), LL_RM:
            OutScales Required [Is(Ranks), Is(MaxTokens), Is(Extent::ScaleWidth)] SameAsScales,
            "received scales follow received tokens slot by slot" ("EP 5.2 #8") when Fwd;
        "dispatch.ht-out-scales" on "outputs.scales" in Dispatch(Fwd), HT:
            OutScales Required [Is(Extent::TokenRows), Is(Extent::ScaleWidth)] SameAsScales,
            "received scales have as many rows as received tokens" ("EP 5.2 #8") when Fwd;
        "dispatch.em-weights" on "inputs.topk_weights" in Dispatch(Fwd), LL_EM:
            InWeights Forbidden [] Float32,
            "low-latency expert-major takes routing weights at combine" ("EP 4.2");
        "dispatch.weights" on "inputs.topk_weights" in Dispatch(Fwd), WEIGHTED:
            InWeights Required [Is(Extent::Tokens), Is(TopK)] Float32,
            "routing weights are [tokens, top-k]" ("EP 4.3, 4.5 #9");
        "dispatch.ll-em-out-tokens" on "outputs.tokens" in Dispatch(Fwd), LL_EM:
            OutTokens Required [Is(LocalExperts), Is(RanksTimesMaxTokens), Is(Extent::Hidden)] SameAsTokens,
            "low-latency expert-major receives [local experts, ranks x max tokens, hidden]" ("EP 4.2");
        "dispatch.ll-rm-out-tokens" on "outputs.tokens" in Dispatch(Fwd), LL_RM:
            OutTokens Required [Is(Ranks), Is(MaxTokens), Is(Extent::Hidden)] SameAsTokens,
            "low-latency rank-major receives [ranks, max tokens, hidden]" ("EP 4.3");
        "dispatch.ht-out-tokens" on "outputs.tokens" in Dispatch(Fwd), HT:
            OutTokens Required [AtLeast(RecvRows), Is(Extent::Hidden)] SameAsTokens,
            "high throughput receives [rows of the budget or more, hidden]" ("EP 4.5 #7");
        "dispatch.ll-em-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), LL_EM:
            OutWeights Forbidden [] Float32,
            "low-latency expert-major receives no weights" ("EP 4.2");
        "dispatch.ll-rm-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), LL_RM:
            OutWeights Required [Is(Ranks), Is(MaxTokens), Is(TopK)] Float32,
            "low-latency rank-major receives weights [ranks, max tokens, top-k]" ("EP 4.3");
        "dispatch.flat-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), FLAT:
            OutWeights Required [AtLeast(OutRows), Is(TopK)] Float32,
            "flat receives weights [rows, top-k], as many rows as tokens may" ("EP 4.5 #19");
        "dispatch.ht-em-out-weights" on "outputs.topk_weights" in Dispatch(Fwd), HT_EM:
            OutWeights Required [AtLeast(OutRows)] Float32,
            "high-throughput expert-major receives one weight a row" ("EP 4.5 #21");
        "dispatch.ll-em-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), LL_EM:
            OutIdx Forbidden [] Int32,
            "low-latency expert-major receives no indices" ("EP 4.2");
        "dispatch.ll-rm-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), LL_RM:
            OutIdx Required [Is(Ranks), Is(MaxTokens), Is(TopK)] Int32,
            "low-latency rank-major receives int32 indices [ranks, max tokens, top-k]" ("EP 4.3");
        "dispatch.flat-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), FLAT:
            OutIdx Required [AtLeast(OutRows), Is(TopK)] Int64,
            "flat receives int64 indices [rows, top-k], as many rows as tokens may" ("EP 4.5 #20");
        "dispatch.ht-em-out-idx" on "outputs.topk_idx" in Dispatch(Fwd), HT_EM:
            OutIdx Forbidden [] Int64,
            "high-throughput expert-major receives no indices" ("EP 4.5 #20");
        "dispatch.ll-em-expert-counters" on "layout_info.expert_counters" in Dispatch(Fwd), LL_EM:
            LiExpertCounters Required [Is(LocalExperts)] Int32,
            "low-latency expert-major counts each local expert's rows in int32" ("EP 4.2");
        "dispatch.ll-rm-expert-counters" on "layout_info.expert_counters" in Dispatch(Fwd), LL_RM:
            LiExpertCounters Forbidden [] Int32,
            "low-latency rank-major counts by source rank" ("EP 4.3");
        "dispatch.ht-expert-counters" on "layout_info.expert_counters" in Dispatch(Fwd), HT:
            LiExpertCounters Forbidden [] Int32,
            "high throughput takes counters at update" ("EP 4.17");
        "dispatch.ll-em-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Fwd), LL_EM:
            LiSrcRankCounters Forbidden [] Int32,
            "low-latency expert-major counts by expert" ("EP 4.2");
        "dispatch.ll-rm-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Fwd), LL_RM:
            LiSrcRankCounters Optional [Is(Ranks)] Int32,
            "low-latency rank-major counts each source rank's tokens in int32" ("EP 4.3");
        "dispatch.ht-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Fwd), HT:
            LiSrcRankCounters Forbidden [] Int32,
            "only low-latency rank-major counts source ranks" ("EP 4.17");
        "dispatch.expert-offsets" on "layout_info.expert_offsets" in Dispatch(Fwd), ALL:
            LiExpertOffsets Forbidden [] Int32,
            "expert offsets are written at update, if at all" ("EP 4.17");
        "dispatch.recv-total" on "layout_info.recv_total_counter" in Dispatch(Fwd), ALL:
            LiRecvTotal Forbidden [] Int32,
            "the receive total is written at update, if at all" ("EP 4.17");

        "dispatch.bwd-tokens" on "inputs.tokens" in Dispatch(Bwd), HT:
            InTokens Required [Is(Extent::Tokens), Hidden] Token,
            "gradients are [tokens of the update, hidden]" ("EP 4.9") when None;
        "dispatch.bwd-quantized-tokens" on "inputs.tokens" in Dispatch(Bwd), HT:
            InTokens Required [Is(Extent::Tokens), Hidden] AnyFloat,
            "quantized gradients are [tokens of the update, hidden]" ("EP 5.2 #2") when Fwd;
        "dispatch.bwd-no-scales" on "inputs.scales" in Dispatch(Bwd), HT:
            InScales Forbidden [] Float32,
            "without a recipe there are no scales" ("EP 4.0") when None;
        "dispatch.bwd-no-out-scales" on "outputs.scales" in Dispatch(Bwd), HT:
            OutScales Forbidden [] Float32,
            "without a recipe no scales are received" ("EP 4.0") when None;
        "dispatch.bwd-scales" on "inputs.scales" in Dispatch(Bwd), HT:
            InScales Required [Is(Extent::Tokens), Dim::Scales] Scale,
            "scales are [tokens, scales a token]" ("EP 5.2 #6") when Fwd;
        "dispatch.bwd-out-scales" on "outputs.scales" in Dispatch(Bwd), HT:
            OutScales Required [Is(Extent::TokenRows), Is(Extent::ScaleWidth)] SameAsScales,
            "received scales have as many rows as received tokens" ("EP 5.2 #8") when Fwd;
        "dispatch.bwd-weights" on "inputs.topk_weights" in Dispatch(Bwd), HT:
            InWeights Forbidden [] Float32, "a backward dispatch moves no weights" ("EP 4.5 #11");
        "dispatch.bwd-out-tokens" on "outputs.tokens" in Dispatch(Bwd), HT:
            OutTokens Required [AtLeast(RecvRows), Is(Extent::Hidden)] SameAsTokens,
            "a backward dispatch receives [rows of the budget or more, hidden]" ("EP 4.9");
        "dispatch.bwd-out-weights" on "outputs.topk_weights" in Dispatch(Bwd), HT:
            OutWeights Forbidden [] Float32, "a backward dispatch receives no weights" ("EP 4.5 #11");
        "dispatch.bwd-expert-counters" on "layout_info.expert_counters" in Dispatch(Bwd), HT:
            LiExpertCounters Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
        "dispatch.bwd-src-rank-counters" on "layout_info.src_rank_counters" in Dispatch(Bwd), HT:
            LiSrcRankCounters Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
        "dispatch.bwd-expert-offsets" on "layout_info.expert_offsets" in Dispatch(Bwd), HT:
            LiExpertOffsets Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
        "dispatch.bwd-recv-total" on "layout_info.recv_total_counter" in Dispatch(Bwd), HT:
            LiRecvTotal Forbidden [] Int32, "a backward dispatch counts nothing" ("EP 4.9");
        "dispatch.bwd-out-idx" on "outputs.topk_idx" in Dispatch(Bwd), HT:
            OutIdx Forbidden [] Int64, "a backward dispatch receives no indices" ("EP 4.5 #11");
    }
}
