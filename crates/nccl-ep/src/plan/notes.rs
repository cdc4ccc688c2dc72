//! What the numbers do not say.

use super::buffer::Note;
use super::check::Checked;
use super::constants::{LL_COUNTER_TAG, TOKENS_ONCE_SUPPORTED};
use super::setup::Setup;
use crate::rules::combine::BACKWARD_LOCAL_EXPERTS;

pub(super) fn notes(setup: &Setup, checked: &Checked) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |text: String, source| notes.push(Note { text, source });
    let geometry = &checked.geometry;
    let tokens = geometry.max_tokens;
    if geometry.eager {
        let rows = checked.received_rows().unwrap_or(u128::MAX);
        note(
            format!(
                "eager: the group has room for {} rows and at most {rows} arrive; the caller's \
                 tensors need only those that do",
                geometry.max_recv
            ),
            "EP 4.13",
        );
    }
    if geometry.eager && checked.expert_major() {
        let rows = u128::from(tokens) * u128::from(checked.topk);
        note(format!("evenly routed, {rows} rows arrive (M K)"), "EP 3.5.3");
    }
    if tokens > TOKENS_ONCE_SUPPORTED.into() {
        let cap = TOKENS_ONCE_SUPPORTED;
        let text = format!(
            "{tokens} tokens a rank are more than the {cap} that the vendor once named as \
             supported; 0.2.0 enforces no cap"
        );
        note(text, "EP 8");
    }
    let low = setup.group.algorithm == crate::enums::Algorithm::LowLatency;
    if low && tokens >= LL_COUNTER_TAG.into() {
        let text = format!(
            "low latency counts with a tag of {LL_COUNTER_TAG}; up to 20000 tokens a rank were \
             seen to be exact, more were not tried"
        );
        note(text, "EP 4.1");
    }
    if low && geometry.rdma_buffer == 0 {
        let text = "the communication buffer grows to what the group's largest handle needs; this \
                    is one handle's";
        note(text.into(), "EP 3.4");
    }
    if geometry.local_experts > BACKWARD_LOCAL_EXPERTS && checked.mode.is_high_throughput() {
        let text = format!(
            "forward only: a backward combine takes at most {BACKWARD_LOCAL_EXPERTS} experts of a \
             rank, and here are {}",
            geometry.local_experts
        );
        note(text, "EP 8");
    }
    if setup.group.enable_mask {
        let text = "the mask comes with a buffer for its barrier, whose size is not specified and \
                    not counted";
        note(text.into(), "EP 2.1 #37");
    }
    notes
}
