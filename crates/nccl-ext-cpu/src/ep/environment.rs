//! Environment variables that change results, read at group creation (EP 7.1).

use nccl_ext_core::env_value;

/// What the environment says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Environment {
    pub(super) local_dup: bool,
    pub(super) nvlink_dup: bool,
    pub(super) comm_sms: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
}

impl Environment {
    pub(super) fn read() -> Self {
        Self::of(&env_value::variable)
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        // Anything that is neither on nor off is ignored, which is off.
        let flag = |name| variable(name).and_then(|text| env_value::flag(&text)).unwrap_or(false);
        let number = |name| variable(name).map(|text| env_value::strtoul(&text));
        Self {
            local_dup: flag("NCCL_EP_HT_EM_LOCAL_DUP"),
            nvlink_dup: flag("NCCL_EP_HT_EM_NVLINK_DUP"),
            comm_sms: number("NCCL_EP_COMM_SMS"),
            timeout_ms: number("NCCL_EP_TIMEOUT_MS"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &'static str) -> Environment {
        Environment::of(&move |_| Some(text.to_owned()))
    }

    #[test]
    fn flags_as_the_vendor_reads_them() {
        for on in ["1", "on", "TRUE", "On"] {
            assert!(all(on).local_dup && all(on).nvlink_dup, "{on}");
        }
        for off in ["0", "off", "False", "", "yes", "2", " 1"] {
            assert!(!all(off).local_dup, "{off}");
        }
    }

    #[test]
    fn numbers_end_at_the_first_other_character() {
        for (text, number) in [("24 SMs", 24), ("many", 0), ("+16", 16), ("-1", u64::MAX)] {
            let Environment { comm_sms, timeout_ms, .. } = all(text);
            assert_eq!((comm_sms, timeout_ms), (Some(number), Some(number)), "{text}");
        }
    }
}
