//! Rules of handle creation (EP 3.2, 3.4, 11).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules::check;
use nccl_ext_core::{Result, rules};

use crate::config::HandleConfig;
use crate::enums::{Algorithm, Layout, OverflowPolicy, TopK};
use crate::geometry::{EmMode, Geometry};
use crate::mode::Mode;

/// Alignment of memory for a handle that the caller gives: sub-buffers start at multiples of it and
/// are read with vector operations (EP 3.2).
const MEMORY_ALIGNMENT: usize = 256;

/// Ranks and budget that a slot of the expert-major maps can name (EP 8).
const EM_TEAM_LIMIT: u64 = 1024;
const EM_DUP_SLOT_LIMIT: u64 = 1 << 22;

/// A handle that is to be made.
pub(crate) struct HandleFacts<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) mode: Mode,
    pub(crate) topk: u64,
    /// As configured; 0 and 1 do not pad.
    pub(crate) alignment: u64,
}

impl HandleFacts<'_> {
    fn ht(&self) -> bool {
        self.mode.is_high_throughput()
    }

    fn ll(&self) -> bool {
        self.mode.is_low_latency()
    }

    fn ht_em(&self) -> bool {
        self.mode == Mode::HighThroughputExpertMajor
    }

    fn em_dup(&self) -> bool {
        self.ht() && self.geometry.em_mode != EmMode::LocalPermute
    }

    fn ll_topk_limit(&self) -> u64 {
        self.geometry.experts.min(32).min(self.geometry.ll_warps().saturating_sub(1))
    }

    fn ll_buffer_units(&self) -> [u128; 4] {
        self.geometry.ll_buffer(self.mode.layout(), self.topk).parts
    }

    fn ll_buffer_total(&self) -> u128 {
        self.geometry.ll_buffer(self.mode.layout(), self.topk).total
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

/// What a handle is asked to be, before it is known whether there is such a handle.
pub(crate) struct HandleRequest<'a> {
    geometry: &'a Geometry,
    layout: Layout,
    topk: TopK,
}

impl HandleRequest<'_> {
    fn mode(&self) -> Option<Mode> {
        Mode::new(self.geometry.algorithm, self.layout)
    }

    fn topk(&self) -> Option<u64> {
        match self.topk {
            TopK::N(topk) => Some(topk.into()),
            TopK::Auto => Some(self.geometry.group_topk).filter(|topk| *topk > 0),
        }
    }
}

/// Checks every rule of making a handle; gives its mode and top-k.
pub(crate) fn mode_and_topk(
    geometry: &Geometry,
    layout: Layout,
    config: &HandleConfig,
    topk: TopK,
) -> Result<(Mode, u64)> {
    let request = HandleRequest { geometry, layout, topk };
    check(REQUEST, |broken| broken(&request))?;
    // The rows of the request hold, so that there are both.
    let (mode, topk) = (request.mode().unwrap_or_default(), request.topk().unwrap_or(0));
    let alignment = config.dispatch_output_per_expert_alignment as u64;
    let facts = HandleFacts { geometry, mode, topk, alignment };
    check(RULES, |broken| broken(&facts))?;
    Ok((mode, topk))
}

rules! {
    /// Checked by every way to make a handle, before its other rules.
    REQUEST over HandleRequest {
        "handle.automatic-topk" on "num_topk": "automatic top-k is the group's" ("EP 3.2", Uniform)
            |f| f.topk().is_none() => ("GroupConfig::num_topk set, or TopK::N here", "neither");
        "handle.layout" on "layout":
            "low latency has expert-major and rank-major, high throughput flat and expert-major"
            ("EP 3.2 #4", Uniform)
            |f| f.mode().is_none()
                => (match f.geometry.algorithm {
                        Algorithm::HighThroughput => "flat or expert-major",
                        Algorithm::LowLatency => "expert-major or rank-major",
                    },
                    f.layout);
    }
}

rules! {
    /// Checked by every way to make a handle.
    RULES over HandleFacts {
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
            "low latency has one warp a choice and one more, of at most 32" ("EP 3.2 LL c", Uniform)
            |f| f.ll() && f.topk > f.ll_topk_limit()
                => (format!("at most {}", f.ll_topk_limit()), f.topk);
        "handle.ht-topk" on "num_topk": "a handle stays within the group's top-k"
            ("EP 3.2 HT b", Uniform)
            |f| f.ht() && f.geometry.group_topk != 0 && f.topk > f.geometry.group_topk
                => (format!("at most {}", f.geometry.group_topk), f.topk);
        "handle.eager-topk" on "GroupConfig::num_topk":
            "eager expert-major sizes its maps by the group's top-k" ("EP 3.2 HT c", Uniform)
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
        "handle.em-team" on "communicator": "expert-major addresses at most 1024 ranks"
            ("EP 8", Uniform)
            |f| f.ht_em() && f.geometry.lsa > EM_TEAM_LIMIT
                => (format!("at most {EM_TEAM_LIMIT} ranks of a load/store team"), f.geometry.lsa);
        "handle.em-dup-crowd" on "num_topk":
            "the duplicating mode adds up at most 8 experts of a token on one rank, so more need \
             their ids checked" ("EP 4.8.1", Uniform)
            |f| f.ht_em() && f.geometry.em_mode == EmMode::LocalDup && f.crowd() > 8
                && !f.geometry.checks_data
                => ("at most 8, or Validation::Data", f.crowd());
        "handle.em-dup-budget" on "max_recv_tokens_per_rank":
            "the duplicating modes stage ranks x tokens x top-k rows" ("EP 3.2 HT d", Uniform)
            |f| f.em_dup() && u128::from(f.geometry.max_recv) < f.dup_rows()
                => (format!("at least {}", f.dup_rows()), f.geometry.max_recv);
        "handle.em-dup-slots" on "max_recv_tokens_per_rank":
            "the duplicating modes number received rows in 22 bits" ("EP 8", Uniform)
            |f| f.ht_em() && f.em_dup() && f.geometry.max_recv >= EM_DUP_SLOT_LIMIT
                => (format!("at most {}", EM_DUP_SLOT_LIMIT - 1), f.geometry.max_recv);
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

/// Memory that the caller gives for a handle.
pub(crate) struct MemoryFacts {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// What the handle needs.
    pub(crate) needed: usize,
}

impl MemoryFacts {
    fn fits(&self) -> bool {
        let aligned = self.address.is_multiple_of(MEMORY_ALIGNMENT);
        self.address != 0 && self.bytes >= self.needed && aligned
    }
}

rules! {
    /// Checked by calls that put a handle into memory of the caller's.
    MEMORY over plain MemoryFacts {
        "handle.memory" on "handle_mem":
            "handle memory has the queried size and an alignment of 256 bytes" ("EP 3.2", Local)
            |f| !f.fits()
                => (format!("{} bytes at a multiple of {MEMORY_ALIGNMENT}", f.needed),
                    format!("{} bytes at {:#x}", f.bytes, f.address));
    }
}
