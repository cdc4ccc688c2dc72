//! Refusals that several calls share.

use nccl_ep_sys::ncclEpPassDir_t;
use nccl_ext_core::raw::ncclResult_t;

use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// What a call that needs an update says before the first successful one.
pub(super) fn not_updated(class: FailureClass, code: ncclResult_t) -> Refusal {
    let rule = "a handle is updated before its first operation";
    Refusal::usage(class, "handle", rule, "ncclEpUpdateHandle before", "none").with_code(code)
}

/// What a combine without a dispatch says.
pub(super) fn not_dispatched() -> Refusal {
    let rule = "a combine follows a dispatch of the handle";
    let class = FailureClass::UndefinedBehaviour;
    Refusal::usage(class, "handle", rule, "ncclEpDispatch before", "none")
}

/// What a receive half says whose send has not run.
pub(super) fn not_sent() -> Refusal {
    let rule = "the send half of a staged operation has run before its receive half";
    let class = FailureClass::UndefinedBehaviour;
    Refusal::usage(class, "handle", rule, "a staged send", "none")
}

/// Turns a failed compilation into what the vendor's library returns for it (EP 7.4).
pub(super) fn compile_failure(
    argument: &str,
    rule: &str,
    expected: String,
    found: usize,
) -> Refusal {
    Refusal::argument(FailureClass::Return, argument, rule, expected, found)
        .with_code(ncclResult_t::ncclInternalError)
}

/// Refuses a row of `bytes` that is longer than `max_token_bytes`.
pub(super) fn check_row_fits(class: FailureClass, bytes: usize, max_token_bytes: usize) -> Outcome {
    require(bytes <= max_token_bytes, || {
        let rule = "a row is at most max_token_bytes long";
        let expected = format_args!("at most {max_token_bytes} bytes").to_string();
        Refusal::argument(class, "inputs.tokens", rule, expected, bytes)
    })
}

/// High throughput moves rows in units of 16 bytes.
pub(super) fn check_row_unit(class: FailureClass, name: &str, bytes: usize) -> Outcome {
    require(bytes.is_multiple_of(16), || {
        let rule = "high throughput moves rows in units of 16 bytes";
        Refusal::argument(class, name, rule, "a multiple of 16 bytes", bytes)
    })
}

/// Low latency has one direction.
pub(super) fn require_forward(direction: ncclEpPassDir_t) -> Outcome {
    require(direction == ncclEpPassDir_t::NCCL_EP_FWD_PASS, || {
        let rule = "low latency has no backward pass";
        Refusal::usage(FailureClass::Return, "pass_direction", rule, "FWD (0)", direction.0)
    })
}
