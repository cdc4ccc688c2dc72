//! Rules of a runtime's configuration (M2N 1.4, 6).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

use crate::config::Config;

/// What the rules of a configuration look at.
pub(crate) struct ConfigFacts<'a> {
    pub(crate) config: &'a Config,
}

impl ConfigFacts<'_> {
    fn max_cta(&self) -> u32 {
        self.config.max_cta.unwrap_or(1)
    }
}

rules! {
    /// Checked when a runtime is made.
    RULES over ConfigFacts {
        "config.max-cta" on "max_cta":
            "a limit of thread blocks is a positive C int (the library ignores any other)"
            ("M2N 1.4", Uniform)
            |f| !(1..=i32::MAX.unsigned_abs()).contains(&f.max_cta())
                => (format!("1 to {}, or none", i32::MAX), f.max_cta());
    }
}
