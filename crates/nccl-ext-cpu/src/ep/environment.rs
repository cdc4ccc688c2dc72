//! Environment variables that change results, read at group creation (EP 7.1).

use std::env;

/// What the environment says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Environment {
    pub(super) local_dup: bool,
    pub(super) nvlink_dup: bool,
    pub(super) comm_sms: Option<u32>,
    pub(super) timeout_ms: Option<u32>,
}

impl Environment {
    pub(super) fn read() -> Self {
        Self {
            local_dup: flag("NCCL_EP_HT_EM_LOCAL_DUP"),
            nvlink_dup: flag("NCCL_EP_HT_EM_NVLINK_DUP"),
            comm_sms: number("NCCL_EP_COMM_SMS"),
            timeout_ms: number("NCCL_EP_TIMEOUT_MS"),
        }
    }
}

fn flag(name: &str) -> bool {
    env::var(name).is_ok_and(|text| is_on(&text))
}

/// Anything that is neither on nor off is ignored, which is off.
fn is_on(text: &str) -> bool {
    ["1", "on", "true"].iter().any(|on| text.eq_ignore_ascii_case(on))
}

fn number(name: &str) -> Option<u32> {
    env::var(name).ok().filter(|text| !text.is_empty()).map(|text| leading_number(&text))
}

/// As `strtoul` reads: leading digits, 0 without any.
fn leading_number(text: &str) -> u32 {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_as_the_vendor_reads_them() {
        for on in ["1", "on", "TRUE", "On"] {
            assert!(is_on(on), "{on}");
        }
        for off in ["0", "off", "False", "", "yes", "2", " 1"] {
            assert!(!is_on(off), "{off}");
        }
    }

    #[test]
    fn numbers_end_at_the_first_other_character() {
        assert_eq!(leading_number("24 SMs"), 24);
        assert_eq!(leading_number("many"), 0);
    }
}
