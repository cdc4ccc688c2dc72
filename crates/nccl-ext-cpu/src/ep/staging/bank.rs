//! Copies of what a rank has sent and its peers have yet to take (EP 6.1). They belong to the
//! group: handles and the caller's tensors may be gone before the last peer comes.

use std::sync::Arc;

use super::source::{CombineSource, DispatchSource, RowShape};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// A group's staged sends.
#[derive(Default)]
pub(crate) struct Staging {
    /// One for each parity of the operation's number: who stages operation n+2 is done with n+1,
    /// which its peers have posted after being done with n.
    banks: [Bank; 2],
    /// Whether a staged send of this rank waits for its completion.
    pub(crate) pending: bool,
}

impl Staging {
    pub(crate) fn bank(&mut self, operation: u64) -> &mut Bank {
        &mut self.banks[usize::from(operation % 2 == 1)]
    }

    /// Refuses any operation of a group in which a staged send is under way (EP 4.11).
    pub(crate) fn require_nothing_pending(&self) -> Outcome {
        require(!self.pending, || {
            let rule = "between a staged send and its ncclEpComplete the group does nothing else";
            let expected = "ncclEpComplete first";
            Refusal::usage(FailureClass::Trap, "send_only", rule, expected, "pending")
        })
    }
}

/// One staged send.
#[derive(Default)]
pub(crate) struct Bank {
    rows: Vec<u128>,
    scales: Vec<u128>,
    weights: Vec<f32>,
    experts: Vec<u32>,
    per_expert: Vec<u32>,
    starts: Vec<usize>,
    // Shared pointers, because peers read the values while the bank itself may move.
    dispatch: Option<Arc<DispatchSource>>,
    combine: Option<Arc<CombineSource>>,
}

impl Bank {
    /// Copies what a dispatch shows.
    ///
    /// # Safety
    /// The source is valid, with rows of this shape, and so are the tables it points to.
    pub(crate) unsafe fn stage_dispatch(
        &mut self,
        source: &DispatchSource,
        shape: RowShape,
        experts: usize,
    ) -> Arc<DispatchSource> {
        let RowShape { bytes, scale_bytes, topk } = shape;
        self.experts.clear();
        self.experts.extend_from_slice(source.experts(topk));
        self.per_expert.clear();
        self.per_expert.extend_from_slice(source.per_expert(experts));
        let tokens = source.tokens;
        self.weights.clear();
        if !source.weights.is_null() {
            // SAFETY: this function's contract: `topk` weights a token.
            let weights = unsafe { core::slice::from_raw_parts(source.weights, tokens * topk) };
            self.weights.extend_from_slice(weights);
        }
        let rows = room(&mut self.rows, tokens * bytes);
        let scales = room(&mut self.scales, tokens * scale_bytes);
        for (from, to, bytes) in [(source.rows, rows, bytes), (source.scales, scales, scale_bytes)]
        {
            if tokens * bytes > 0 {
                // SAFETY: this function's contract; the room has just been made.
                unsafe { core::ptr::copy_nonoverlapping(from, to, tokens * bytes) };
            }
        }
        let staged = DispatchSource {
            clock: source.clock.clone(),
            key: source.key,
            tokens,
            experts: self.experts.as_ptr(),
            per_expert: self.per_expert.as_ptr(),
            rows,
            scales,
            weights: self.weights.as_ptr(),
        };
        Arc::clone(self.dispatch.insert(Arc::new(staged)))
    }

    /// Copies the rows that a combine shows: of each region of `stride` rows the first as
    /// many as were received, packed.
    ///
    /// # Safety
    /// Every region has that many rows of `bytes` bytes.
    pub(crate) unsafe fn stage_combine(
        &mut self,
        source: &CombineSource,
        bytes: usize,
        stride: usize,
        received: &[u32],
    ) -> Arc<CombineSource> {
        self.starts.clear();
        let mut total = 0;
        for &count in received {
            self.starts.push(total);
            total += count as usize;
        }
        let rows = room(&mut self.rows, total * bytes);
        for (i, (&start, &count)) in self.starts.iter().zip(received).enumerate() {
            let count = count as usize * bytes;
            if count > 0 {
                // SAFETY: this function's contract; `rows` has room for all.
                unsafe {
                    let from = source.rows.add(i * stride * bytes);
                    core::ptr::copy_nonoverlapping(from, rows.add(start * bytes), count);
                }
            }
        }
        let staged = CombineSource { key: source.key, rows, starts: self.starts.as_ptr() };
        Arc::clone(self.combine.insert(Arc::new(staged)))
    }
}

/// Aligned memory for rows. What was there is lost.
fn room(rows: &mut Vec<u128>, bytes: usize) -> *mut u8 {
    rows.resize(bytes.div_ceil(size_of::<u128>()), 0);
    rows.as_mut_ptr().cast()
}
