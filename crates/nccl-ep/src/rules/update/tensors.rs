//! Tensors of an update (EP 3.5).

use crate::rules::tensor_row::Call::Update;
use crate::rules::tensor_row::extents::Dim::{AtLeast, Is};
use crate::rules::tensor_row::extents::Extent::{self, LocalExperts, One, TopK};
use crate::rules::tensor_row::tensors;

tensors! {
    /// Checked by [`Handle::update`](crate::Handle::update).
    TABLE {
        "update.topk-idx" on "topk_idx" in Update, ALL:
            TopkIdx Required [AtLeast(Extent::Zero), Is(TopK)] Int32OrInt64,
            "routing is [tokens, top-k] of integers" ("EP 3.5");
        "update.ll-expert-counters" on "layout_info.expert_counters" in Update, LL:
            LiExpertCounters Forbidden [] Int32,
            "low latency takes layout information at dispatch" ("EP 3.5.1");
        "update.ll-src-rank-counters" on "layout_info.src_rank_counters" in Update, LL:
            LiSrcRankCounters Forbidden [] Int32,
            "low latency takes layout information at dispatch" ("EP 3.5.1");
        "update.ll-expert-offsets" on "layout_info.expert_offsets" in Update, LL:
            LiExpertOffsets Forbidden [] Int32,
            "low latency has no expert offsets" ("EP 3.5.1");
        "update.ll-recv-total" on "layout_info.recv_total_counter" in Update, LL:
            LiRecvTotal Forbidden [] Int32,
            "low latency has no receive total" ("EP 3.5.1");
        "update.flat-expert-counters" on "layout_info.expert_counters" in Update, FLAT:
            LiExpertCounters Optional [AtLeast(LocalExperts)] Int32,
            "flat counts each local expert's tokens in int32" ("EP 3.5.2");
        "update.em-expert-counters" on "layout_info.expert_counters" in Update, HT_EM:
            LiExpertCounters Optional [AtLeast(LocalExperts)] Int32OrInt64,
            "expert-major counts each local expert's padded rows" ("EP 3.5.2");
        "update.flat-expert-offsets" on "layout_info.expert_offsets" in Update, FLAT:
            LiExpertOffsets Forbidden [] Int32,
            "flat has no zones, so nothing would be written" ("EP 3.5.2");
        "update.em-expert-offsets" on "layout_info.expert_offsets" in Update, HT_EM:
            LiExpertOffsets Optional [AtLeast(LocalExperts)] Int32OrInt64,
            "expert-major writes where each local expert's zone begins" ("EP 3.5.2");
        "update.ht-recv-total" on "layout_info.recv_total_counter" in Update, HT:
            LiRecvTotal Optional [AtLeast(One)] Int32OrInt64,
            "the receive total is one integer" ("EP 3.5.2");
        "update.ht-src-rank-counters" on "layout_info.src_rank_counters" in Update, HT:
            LiSrcRankCounters Forbidden [] Int32,
            "only low-latency rank-major counts source ranks" ("EP 3.5.2");
    }
}
