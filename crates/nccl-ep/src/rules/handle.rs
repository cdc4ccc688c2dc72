//! Rules of handle creation (EP 3.2, 3.4, 11).

use nccl_ext_core::{Error, Result, Scope, rules};

use crate::config::HandleConfig;
use crate::enums::{Algorithm, Layout, OverflowPolicy, TopK};
use crate::geometry::{EmMode, Geometry};

/// What the rules of handle creation look at.
pub(crate) struct Facts<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) layout: Layout,
    pub(crate) topk: u64,
    /// As configured; 0 and 1 do not pad.
    pub(crate) alignment: u64,
}

impl Facts<'_> {
    fn ht(&self) -> bool {
        self.geometry.algorithm == Algorithm::HighThroughput
    }

    fn ll(&self) -> bool {
        !self.ht()
    }

    fn ht_em(&self) -> bool {
        self.ht() && self.layout == Layout::ExpertMajor
    }

    fn em_dup(&self) -> bool {
        self.ht() && self.geometry.em_mode != EmMode::LocalPermute
    }

    fn layout_fits(&self) -> bool {
        self.layout == Layout::ExpertMajor
            || self.layout == if self.ht() { Layout::Flat } else { Layout::RankMajor }
    }

    fn ll_topk_limit(&self) -> u64 {
        self.geometry.experts.min(32).min(self.geometry.ll_warps().saturating_sub(1))
    }

    fn ll_buffer_units(&self) -> [u128; 4] {
        self.geometry.ll_buffer(self.layout, self.topk).parts
    }

    fn ll_buffer_total(&self) -> u128 {
        self.geometry.ll_buffer(self.layout, self.topk).total
    }

    /// Most experts of one token that one rank may own.
    fn crowd(&self) -> u64 {
        self.topk.min(self.geometry.local_experts)
    }

    /// Rows that padding alone may add up to.
    fn padding_rows(&self) -> u128 {
        u128::from(self.geometry.local_experts) * u128::from(self.alignment)
    }

    fn topk_limit(&self) -> u64 {
        self.geometry.experts.min(i32::MAX.unsigned_abs().into())
    }

    fn dup_rows(&self) -> u128 {
        u128::from(self.geometry.ranks)
            * u128::from(self.geometry.max_tokens)
            * u128::from(self.topk)
    }
}

/// Resolves the top-k of a handle and checks every rule of its creation.
pub(crate) fn checked(
    geometry: &Geometry,
    layout: Layout,
    config: &HandleConfig,
    topk: TopK,
) -> Result<u64> {
    let topk = match topk {
        TopK::N(topk) => topk.into(),
        TopK::Auto if geometry.group_topk > 0 => geometry.group_topk,
        TopK::Auto => {
            return Err(Error::Invalid {
                argument: "num_topk",
                rule: "automatic top-k is the group's",
                expected: "GroupConfig::num_topk set, or TopK::N here".into(),
                found: "neither".into(),
                scope: Scope::Uniform,
            });
        }
    };
    let alignment = config.dispatch_output_per_expert_alignment as u64;
    let facts = Facts { geometry, layout, topk, alignment };
    super::check(RULES, |broken| broken(&facts))?;
    Ok(topk)
}

rules! {
    /// Checked by every way to make a handle.
    RULES over Facts {
        "handle.layout" on "layout":
            "low latency has expert-major and rank-major, high throughput flat and expert-major"
            ("EP 3.2 #4", Uniform)
            |f| !f.layout_fits()
                => (if f.ht() { "flat or expert-major" } else { "expert-major or rank-major" },
                    f.layout);
        "handle.alignment" on "dispatch_output_per_expert_alignment":
            "zones are padded to a power of two, or not at all (0 or 1)" ("EP 3.2 #6", Uniform)
            |f| f.ht_em() && f.alignment > 1 && !f.alignment.is_power_of_two()
                => ("0, 1 or a power of two", f.alignment);
        "handle.topk" on "num_topk": "a token goes to between one and all experts"
            ("EP 3.2", Uniform)
            |f| f.topk == 0 || f.topk > f.topk_limit()
                => (format!("1 to {}", f.topk_limit()), f.topk);
        "handle.alignment-room" on "dispatch_output_per_expert_alignment":
            "counters of padded rows fit 32 bits" ("EP 3.5.3", Uniform)
            |f| f.ht_em() && f.padding_rows() > i32::MAX.unsigned_abs().into()
                => (format!("at most {}",
                        u64::from(i32::MAX.unsigned_abs()) / f.geometry.local_experts),
                    f.alignment);
        "handle.ll-topk" on "num_topk":
            "low latency has one warp a choice and one more, of at most 32" ("EP 3.2 c", Uniform)
            |f| f.ll() && f.topk > f.ll_topk_limit()
                => (format!("at most {}", f.ll_topk_limit()), f.topk);
        "handle.ht-topk" on "num_topk": "a handle stays within the group's top-k"
            ("EP 3.2 b", Uniform)
            |f| f.ht() && f.geometry.group_topk != 0 && f.topk > f.geometry.group_topk
                => (format!("at most {}", f.geometry.group_topk), f.topk);
        "handle.eager-topk" on "GroupConfig::num_topk":
            "eager expert-major sizes its maps by the group's top-k" ("EP 3.2 c", Uniform)
            |f| f.ht_em() && f.geometry.eager && f.geometry.group_topk == 0
                => ("the group's num_topk set", 0);
        "handle.em-topk" on "num_topk": "expert-major combine has one lane a choice, of 32"
            ("EP 3.2", Uniform)
            |f| f.ht_em() && f.topk > 32 => ("at most 32", f.topk);
        "handle.em-local-experts" on "num_experts":
            "expert-major permutes at most 256 local experts" ("EP 4.5 #25", Uniform)
            |f| f.ht_em() && !f.em_dup() && f.geometry.local_experts > 256
                => ("at most 256 a rank", f.geometry.local_experts);
        "handle.em-dup-experts" on "num_experts":
            "the duplicating expert-major modes need a power of two of local experts"
            ("EP 2.6", Uniform)
            |f| f.ht_em() && f.em_dup() && !f.geometry.local_experts.is_power_of_two()
                => ("a power of two a rank", f.geometry.local_experts);
        "handle.em-dup-team" on "communicator":
            "the duplicating expert-major modes address at most 128 ranks" ("EP 2.6", Uniform)
            |f| f.ht_em() && f.em_dup() && f.geometry.lsa > 128
                => ("at most 128 ranks of a load/store team", f.geometry.lsa);
        "handle.em-dup-crowd" on "num_topk":
            "the duplicating mode adds up at most 8 experts of a token on one rank, so more need \
             their ids checked" ("EP 4.8.1", Uniform)
            |f| f.ht_em() && f.geometry.em_mode == EmMode::LocalDup && f.crowd() > 8
                && !f.geometry.checks_data
                => ("at most 8, or Validation::Data", f.crowd());
        "handle.em-dup-budget" on "max_recv_tokens_per_rank":
            "the duplicating modes stage ranks x tokens x top-k rows" ("EP 3.2 d", Uniform)
            |f| f.em_dup() && u128::from(f.geometry.max_recv) < f.dup_rows()
                => (format!("at least {}", f.dup_rows()), f.geometry.max_recv);
        "handle.em-dup-drop" on "max_recv_tokens_per_rank":
            "padding may pass the budget unless it is a multiple of the alignment"
            ("EP 4.12", Uniform)
            |f| f.ht_em() && f.em_dup() && f.alignment > 1
                && f.geometry.overflow == OverflowPolicy::Drop
                && !f.geometry.max_recv.is_multiple_of(f.alignment)
                => (format!("a multiple of {}", f.alignment), f.geometry.max_recv);
        "handle.ll-buffer-units" on "max_token_bytes":
            "the regions of the low-latency buffer are multiples of 16 bytes (1024-byte rows \
             always are)" ("EP 3.4", Uniform)
            |f| f.ll() && f.ll_buffer_units().iter().any(|part| part % 16 != 0)
                => ("regions in units of 16 bytes", format!("{:?}", f.ll_buffer_units()));
        "handle.ll-buffer-size" on "rdma_buffer_size":
            "an explicit buffer holds what the handle needs" ("EP 3.4", Uniform)
            |f| f.ll() && f.geometry.rdma_buffer != 0
                && f.ll_buffer_total() > u128::from(f.geometry.rdma_buffer)
                => (format!("0 or at least {}", f.ll_buffer_total()), f.geometry.rdma_buffer);
    }
}

/// Alignment of memory for a handle that the caller gives: sub-buffers start at multiples of it and
/// are read with vector operations (EP 3.2).
pub(crate) const HANDLE_MEM_ALIGNMENT: usize = 256;
