//! Variables that the library reads at group creation (EP 7.1).

use nccl_ext_core::env_value;

/// The variables that rules depend on, or that every rank must set alike.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Environment {
    /// `NCCL_EP_COMM_SMS`; `None` for 0 too, which the library takes for unset.
    pub(crate) comm_sms: Option<u64>,
    /// `NCCL_EP_HT_EM_LOCAL_DUP`.
    pub(crate) local_dup: bool,
    /// `NCCL_EP_HT_EM_NVLINK_DUP`.
    pub(crate) nvlink_dup: bool,
    /// `NCCL_EP_DISABLE_GUARD`: whether the barriers of high throughput are off.
    pub(crate) no_guard: bool,
    /// `NCCL_EP_TOKENS_PER_CHUNK`.
    pub(crate) tokens_per_chunk: u64,
    /// `NCCL_EP_TIMEOUT_MS`.
    pub(crate) timeout_ms: u64,
    /// `NCCL_EP_SHUFFLE_SMS`.
    pub(crate) shuffle_sms: u64,
    /// `NCCL_EP_PREPROCESS_NUM_SMS`.
    pub(crate) preprocess_sms: u64,
}

impl Environment {
    pub(crate) fn read() -> Self {
        Self::of(&env_value::variable)
    }

    /// The same of any environment.
    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let number = |name| variable(name).map_or(0, |text| env_value::strtoul(&text));
        let flag = |name| variable(name).and_then(|text| env_value::flag(&text)).unwrap_or(false);
        Self {
            comm_sms: Some(number("NCCL_EP_COMM_SMS")).filter(|sms| *sms > 0),
            local_dup: flag("NCCL_EP_HT_EM_LOCAL_DUP"),
            nvlink_dup: flag("NCCL_EP_HT_EM_NVLINK_DUP"),
            no_guard: flag("NCCL_EP_DISABLE_GUARD"),
            tokens_per_chunk: number("NCCL_EP_TOKENS_PER_CHUNK"),
            timeout_ms: number("NCCL_EP_TIMEOUT_MS"),
            shuffle_sms: number("NCCL_EP_SHUFFLE_SMS"),
            preprocess_sms: number("NCCL_EP_PREPROCESS_NUM_SMS"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GroupConfig;
    use crate::geometry::GroupFacts;

    fn sms_of_132(text: &'static str) -> u64 {
        let variable = move |name: &str| (name == "NCCL_EP_COMM_SMS").then(|| text.to_owned());
        let environment = Environment::of(&variable);
        let config = &GroupConfig::new();
        GroupFacts { config, ranks: 2, lsa: 2, device_sms: 132, environment }.comm_sms()
    }

    /// EP 7.1: the library compares before it narrows, and keeps the default for what is out of
    /// range.
    #[test]
    fn the_number_of_sms_is_read_as_the_library_reads_it() {
        for (text, sms) in [
            ("+16", 16),
            (" 24 SMs", 24),
            ("132", 132),
            ("133", 132),
            ("many", 132),
            ("-1", 132),
            ("4294967312", 132),
        ] {
            assert_eq!(sms_of_132(text), sms, "{text:?}");
        }
    }

    #[test]
    fn flags_that_are_neither_on_nor_off_are_off() {
        let flag = |text: &'static str| Environment::of(&move |_| Some(text.into())).no_guard;
        assert!(flag("1") && flag("On") && flag("TRUE"));
        assert!(!flag("0") && !flag("") && !flag("yes") && !flag("2"));
    }
}
