//! Rules of settings that are read from text (M2N 5).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

/// What the rules of a profile of staging buckets look at.
pub(crate) struct BucketProfileFacts<'a> {
    pub(crate) text: &'a str,
    /// Whether it can be read as a profile.
    pub(crate) is_profile: bool,
}

rules! {
    /// Checked when staging buckets are made from text.
    BUCKET_PROFILE over BucketProfileFacts {
        "settings.bucket-profile" on "NCCL_RESHARD_PACK_BUFFSIZES":
            "a bucket profile is up to eight size[:slots], with k or m, 64 slots at most; its \
             largest size holds 2048 bytes" ("M2N 5", Uniform)
            |f| !f.is_profile => ("such as 8k:2,1m", format!("{:?}", f.text));
    }
}
