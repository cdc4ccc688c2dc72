//! Rules of group creation (EP 2.1, 2.6, 11).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

use crate::enums::{OverflowPolicy, ZeroCopyMode};
use crate::geometry::{GroupFacts, HT_SMS_ALWAYS, HT_SMS_TWO_RANKS};

impl GroupFacts<'_> {
    fn ll(&self) -> bool {
        !self.ht()
    }

    fn experts(&self) -> u64 {
        self.config.num_experts.into()
    }

    fn max_tokens(&self) -> u64 {
        self.config.max_dispatch_tokens_per_rank.into()
    }

    fn max_recv(&self) -> u64 {
        self.config.max_recv_tokens_per_rank.into()
    }

    fn eager(&self) -> bool {
        self.ht() && self.max_recv() == 0
    }

    fn eager_bound(&self) -> u128 {
        u128::from(self.ranks)
            * u128::from(self.max_tokens())
            * u128::from(self.config.num_topk.max(1))
    }

    fn ht_sm_limit(&self) -> u64 {
        if self.ranks <= 2 { HT_SMS_TWO_RANKS } else { HT_SMS_ALWAYS }
    }

    /// The numbers of ranks over which the experts divide evenly; the smallest sixteen.
    fn valid_rank_counts(&self) -> String {
        let experts = self.experts();
        let counts: Vec<_> = (1..=experts.min(4096))
            .filter(|ranks| experts.is_multiple_of(*ranks))
            .take(16)
            .map(|ranks| ranks.to_string())
            .collect();
        format!("{experts} experts over {} ranks", counts.join(", "))
    }
}

rules! {
    /// Checked by [`Group::create`](crate::Group::create).
    RULES over GroupFacts {
        "group.experts-exist" on "num_experts": "a model has at least one expert"
            ("EP 2.1 #5", Uniform)
            |f| f.experts() == 0 => ("at least 1", 0);
        "group.ll-experts" on "num_experts":
            "low latency carries expert ids in 16 bits and needs two thread blocks"
            ("EP 4.1", Uniform)
            |f| f.ll() && !(2..=65535).contains(&f.experts()) => ("2 to 65535", f.experts());
        "group.experts-divide" on "num_experts": "experts divide evenly over ranks"
            ("EP 3.2 #5", Uniform)
            |f| !f.experts().is_multiple_of(f.ranks)
                => (f.valid_rank_counts(), format!("{} ranks", f.ranks));
        "group.tokens-exist" on "max_dispatch_tokens_per_rank": "a rank may dispatch a token"
            ("EP 2.1 #9", Uniform)
            |f| f.max_tokens() == 0 => ("at least 1", 0);
        "group.token-bytes-exist" on "max_token_bytes": "a token has bytes" ("EP 2.1 #6", Uniform)
            |f| f.config.max_token_bytes == 0 => ("at least 1", 0);
        "group.ht-token-bytes" on "max_token_bytes":
            "high throughput moves rows in units of 16 bytes" ("EP 2.1 #8", Uniform)
            |f| f.ht() && !f.config.max_token_bytes.is_multiple_of(16)
                => ("a multiple of 16", f.config.max_token_bytes);
        "group.ht-experts-team" on "num_experts":
            "high throughput needs local experts times ranks of a load/store team in fours"
            ("EP 4.5 #2", Uniform)
            |f| f.ht() && !(f.experts() / f.ranks * f.lsa).is_multiple_of(4)
                => ("a product that is a multiple of 4",
                    format!("{} experts a rank x {} ranks", f.experts() / f.ranks, f.lsa));
        "group.ht-budget" on "max_recv_tokens_per_rank":
            "the receive budget holds one rank's tokens, or is 0 (eager)" ("EP 2.1 #21", Uniform)
            |f| f.ht() && f.max_recv() != 0 && f.max_recv() < f.max_tokens()
                => (format!("0 or at least {}", f.max_tokens()), f.max_recv());
        "group.topk" on "num_topk": "a token goes to at most all experts" ("EP 2.1 #22", Uniform)
            |f| u64::from(f.config.num_topk) > f.experts()
                => (format!("at most {}", f.experts()), f.config.num_topk);
        "group.eager-drop" on "overflow_policy":
            "eager mode sizes outputs by what arrives, so nothing can be dropped"
            ("EP 2.1 #23", Uniform)
            |f| f.eager() && f.config.overflow_policy == OverflowPolicy::Drop
                => ("auto or trap, or a max_recv_tokens_per_rank", "drop");
        "group.eager-bound" on "max_dispatch_tokens_per_rank":
            "eager mode counts ranks x tokens x top-k in 32 bits" ("EP 2.1 #24", Uniform)
            |f| f.eager() && f.eager_bound() > u128::from(u32::MAX)
                => (format!("a product of at most {}", u32::MAX), f.eager_bound());
        "group.sms" on "max_num_sms": "the device has that many SMs" ("EP 2.1 #16", Uniform)
            |f| u64::from(f.config.max_num_sms) > f.device_sms
                => (format!("at most {}", f.device_sms), f.config.max_num_sms);
        "group.ht-sms" on "max_num_sms":
            "high throughput has 17 barrier slots and hangs above (NCCL_EP_COMM_SMS counts too)"
            ("EP 7.1", Uniform)
            |f| f.ht() && f.comm_sms() > f.ht_sm_limit()
                => (format!("at most {} with {} ranks", f.ht_sm_limit(), f.ranks), f.comm_sms());
        "group.ll-sms" on "max_num_sms":
            "low latency needs two thread blocks and at most 14 experts in one"
            ("EP 2.1 #18", Uniform)
            |f| f.ll() && (f.comm_sms() < 2 || f.experts().div_ceil(f.comm_sms()) > 14)
                => (format!("at least {}", f.experts().div_ceil(14).max(2)), f.comm_sms());
        "group.ht-mask" on "enable_mask": "only low latency has a mask of active ranks"
            ("EP 6.2", Uniform)
            |f| f.ht() && f.config.enable_mask => ("false", "true with high throughput");
        "group.em-flags" on "NCCL_EP_HT_EM_LOCAL_DUP":
            "at most one expert-major mode is forced by the environment" ("EP 2.1 #28", Uniform)
            |f| f.environment.local_dup && f.environment.nvlink_dup
                => ("one of NCCL_EP_HT_EM_LOCAL_DUP and NCCL_EP_HT_EM_NVLINK_DUP unset",
                    "both on");
        "group.zero-copy" on "zero_copy":
            "zero-copy without staging needs window tensors, which this version does not make"
            ("EP 4.14", Uniform)
            |f| f.config.zero_copy == ZeroCopyMode::On => ("auto or off", "on");
    }
}
