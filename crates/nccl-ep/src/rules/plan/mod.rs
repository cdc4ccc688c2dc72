//! Rules of a memory plan that no call checks: there a communicator, a device and their allocators
//! would vouch for them (EP 0.3, 8).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

/// The machine that a plan is for.
pub(crate) struct MachineFacts {
    pub(crate) ranks: u32,
    /// Ranks of a load/store team.
    pub(crate) team_ranks: u32,
    pub(crate) device_sms: u32,
    /// Elements of a token.
    pub(crate) hidden: u32,
}

rules! {
    /// Checked by [`plan::memory`](crate::plan::memory) before the rules of the calls.
    MACHINE over plain MachineFacts {
        "plan.ranks" on "ranks": "a communicator has between one and 2^31 - 1 ranks"
            ("EP 0.3", Uniform)
            |f| !(1..=i32::MAX.unsigned_abs()).contains(&f.ranks)
                => (format!("1 to {}", i32::MAX), f.ranks);
        "plan.team" on "team_ranks": "load/store teams are of equal size" ("EP 0.3", Uniform)
            |f| f.team_ranks == 0 || !f.ranks.is_multiple_of(f.team_ranks)
                => (format!("a divisor of {} ranks", f.ranks), f.team_ranks);
        "plan.device-sms" on "device_sms": "a device has streaming multiprocessors"
            ("EP 0.3", Uniform)
            |f| f.device_sms == 0 => ("at least 1", f.device_sms);
        "plan.hidden" on "hidden": "a token has elements" ("EP 0.3", Uniform)
            |f| f.hidden == 0 => ("at least 1", f.hidden);
    }
}

/// Tokens a rank, and how many the library takes.
pub(crate) struct TokenCapFacts {
    pub(crate) tokens: u32,
    /// `None` for a library without a cap.
    pub(crate) cap: Option<u32>,
}

rules! {
    /// Checked by [`plan::memory`](crate::plan::memory) after the rules of the group.
    TOKEN_CAP over plain TokenCapFacts {
        "plan.token-cap" on "max_dispatch_tokens_per_rank":
            "the library has a cap of tokens a rank (EP 8)" ("EP 8", Uniform)
            |f| f.cap.filter(|cap| f.tokens > *cap)
                => |cap| (format!("at most {cap} tokens a rank"), f.tokens);
    }
}

/// The size of a buffer.
pub(crate) struct BytesFacts {
    pub(crate) buffer: &'static str,
    /// `None` for more than 128 bits count.
    pub(crate) bytes: Option<u128>,
}

impl BytesFacts {
    pub(crate) fn in_64_bits(&self) -> Option<u64> {
        self.bytes.and_then(|bytes| u64::try_from(bytes).ok())
    }
}

rules! {
    /// Checked for each buffer of a plan, which the error names as its argument.
    BYTES over plain BytesFacts {
        "plan.bytes" on "buffer": "the bytes of a buffer are counted in 64 bits"
            ("EP 2.4, 3.1, 3.4", Uniform)
            |f| f.in_64_bits().is_none()
                => (format!("at most {} bytes", u64::MAX),
                    f.bytes.map_or_else(|| "more than 128 bits".into(), |bytes| bytes.to_string()))
                on f.buffer;
    }
}
