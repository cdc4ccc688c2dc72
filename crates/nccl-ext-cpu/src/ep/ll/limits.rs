//! What low-latency kernels can take.

use crate::ep::settings::{Settings, ll_groups};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// Ids travel as 16 bits, and the vendor's library sends tokens to an expert that nobody chose for an
/// id below this one (EP 4.16). The safe crates turn every negative id into -1; a program that calls
/// the C function itself must do so too, and is told here.
pub(super) fn lowest_id(settings: &Settings) -> i64 {
    settings.experts as i64 - 65536
}

/// Elements of a row come in units.
pub(super) fn check_hidden(hidden: usize, unit: usize) -> Outcome {
    require(hidden.is_multiple_of(unit), || {
        let rule = "low latency moves rows in units of elements";
        let expected = format_args!("a multiple of {unit} elements").to_string();
        Refusal::argument(FailureClass::Assert, "inputs.tokens", rule, expected, hidden)
    })
}

/// A low-latency kernel runs on two blocks at least.
pub(super) fn check_blocks(settings: &Settings) -> Outcome {
    let groups = ll_groups(settings.experts, settings.comm_sms);
    let blocks = settings.experts.div_ceil(groups.max(1));
    require(blocks >= 2, || {
        let rule = "low latency runs on two blocks at least";
        let expected = "2 experts and 2 SMs at least";
        let found = format!("{} experts, {} SMs", settings.experts, settings.comm_sms);
        Refusal::usage(FailureClass::Trap, "num_experts", rule, expected, found)
    })
}
