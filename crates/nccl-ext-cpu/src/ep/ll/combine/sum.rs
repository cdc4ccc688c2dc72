//! The summing half of low-latency combine.

use crate::ep::group::View;
use crate::ep::ll::destination::CombineDestination;
use crate::ep::ll::state::LastDispatch;
use crate::ep::numerics::{BLOCK, Token, with_token_type};
use crate::ep::settings::Settings;
use crate::ep::slots::NOWHERE;
use crate::ep::staging::CombineSource;
use crate::queue;
use crate::refusal::Outcome;

impl CombineDestination {
    /// # Safety
    /// The peers show the rows of the dispatch of `sent`; the output has a row, and expert-major weights
    /// `topk` entries, for each of its tokens.
    pub(super) unsafe fn sum(
        &self,
        group: &View<'_>,
        sent: &LastDispatch,
        peers: &[&CombineSource],
    ) -> Outcome {
        let (settings, me) = (group.settings, group.member.rank());
        self.declare()?;
        with_token_type!(self.data_type, T => {
            // SAFETY: this function's contract.
            unsafe { Sum { destination: self, settings, sent, peers, me }.all::<T>(self.out.cast()) }
        });
        Ok(())
    }

    /// The running work is about to read ids and weights, and to write the output.
    fn declare(&self) -> Outcome {
        let tokens = self.ids.tokens;
        self.ids.declare()?;
        if !self.weights.is_null() {
            queue::read(self.weights.cast(), tokens * self.topk * size_of::<f32>())?;
        }
        queue::write(self.out, tokens * self.hidden * self.data_type.size())
    }
}

/// A rank that sums.
struct Sum<'a> {
    destination: &'a CombineDestination,
    settings: &'a Settings,
    sent: &'a LastDispatch,
    peers: &'a [&'a CombineSource],
    me: usize,
}

impl Sum<'_> {
    /// # Safety
    /// As [`CombineDestination::sum`]; rows are aligned elements of `T`.
    unsafe fn all<T: Token>(&self, out: *mut T) {
        let mut sums = [0.0_f32; BLOCK];
        let CombineDestination { hidden, topk, weights, expert_major, .. } = *self.destination;
        let LastDispatch { entries, slots, .. } = self.sent;
        let tokens = entries.experts.chunks_exact(topk);
        let tokens = tokens.zip(slots.of_entry.chunks_exact(topk)).enumerate();
        for (token, (experts, slots)) in tokens {
            for begin in (0..hidden).step_by(BLOCK) {
                let len = BLOCK.min(hidden - begin);
                let sum = &mut sums[..len];
                sum.fill(0.0);
                for (k, (&expert, &slot)) in experts.iter().zip(slots).enumerate() {
                    if slot == NOWHERE || self.is_absent(expert as usize) {
                        continue;
                    }
                    // SAFETY: this function's contract; nobody writes the rows meanwhile.
                    let values = unsafe {
                        let row = self.row(expert as usize, slot as usize).cast::<T>();
                        core::slice::from_raw_parts(row.add(begin), len)
                    };
                    if expert_major {
                        // SAFETY: this function's contract.
                        let weight = unsafe { weights.add(token * topk + k).read() };
                        T::multiply_add(sum, values, weight);
                    } else {
                        T::add(sum, values);
                    }
                }
                // SAFETY: the output's rows; nobody else has them.
                let out = unsafe {
                    core::slice::from_raw_parts_mut(out.add(token * hidden + begin), len)
                };
                T::store(sum, out);
            }
        }
    }

    /// Whether an expert's rank takes no part: then its rows are left out (EP 4.4.4).
    fn is_absent(&self, expert: usize) -> bool {
        self.peers[expert / self.settings.local_experts].rows.is_null()
    }

    /// The row in an entry's slot.
    ///
    /// # Safety
    /// The entry was dispatched to that slot.
    unsafe fn row(&self, expert: usize, slot: usize) -> *const u8 {
        let Settings { local_experts, ranks, max_tokens, .. } = *self.settings;
        let peer = self.peers[expert / local_experts];
        let (region, stride) = match self.destination.expert_major {
            true => (expert % local_experts, ranks * max_tokens),
            false => (self.me, max_tokens),
        };
        let bytes = self.destination.hidden * self.destination.data_type.size();
        // SAFETY: this function's contract; packed rows have the start of every region.
        unsafe {
            let start = match peer.starts.is_null() {
                true => region * stride,
                false => peer.starts.add(region).read(),
            };
            peer.rows.add((start + slot) * bytes)
        }
    }
}
