//! The receiving half of low-latency dispatch: every rank pulls its rows from what its peers
//! show, in the order of source rank and token.

use crate::ep::group::View;
use crate::ep::ll::destination::{DispatchDestination, Outputs, RankMajor};
use crate::ep::ll::state::LastDispatch;
use crate::ep::settings::Settings;
use crate::ep::slots::zeros;
use crate::ep::staging::{DispatchSource, RowShape};
use crate::refusal::{FailureClass, Outcome, Refusal, require};

/// Duplicates in rows can exceed an expert's rows; the vendor's kernel then writes past them. All
/// ranks see the same counts and refuse together.
fn check_capacity(settings: &Settings, peers: &[&DispatchSource]) -> Outcome {
    let room = settings.ranks * settings.max_tokens;
    for expert in 0..settings.experts {
        let counts = |peer: &&DispatchSource| peer.per_expert(settings.experts)[expert] as usize;
        let count: usize = peers.iter().map(counts).sum();
        require(count <= room, || {
            let rule = "duplicates in a row do not overfill an expert's rows";
            let expected = format_args!("at most {room} copies for an expert").to_string();
            let found = format_args!("{count} for expert {expert}").to_string();
            let class = FailureClass::UndefinedBehaviour;
            Refusal::argument(class, "topk_idx", rule, expected, found)
        })?;
    }
    Ok(())
}

impl DispatchDestination {
    /// Takes this rank's rows and notes where its own went: an expert-major slot counts from the
    /// first row of the sources that are not in `before`.
    ///
    /// # Safety
    /// The outputs are valid and have the layout's shapes.
    pub(super) unsafe fn pull(
        &self,
        group: &View<'_>,
        sent: &mut LastDispatch,
        peers: &[&DispatchSource],
        before: &[&DispatchSource],
        operation: u64,
    ) -> Outcome {
        let (settings, me) = (group.settings, group.member.rank());
        let LastDispatch { entries, slots, received, .. } = sent;
        let pull = Pull { settings, destination: self, me, peers };
        match self.outputs {
            Outputs::ExpertMajor { rows, counters } => {
                check_capacity(settings, peers)?;
                slots.place_by_expert(entries, before);
                zeros(received, settings.local_experts);
                pull.count_by_expert(received);
                self.declare_received(settings, peers, received)?;
                received.fill(0);
                // SAFETY: this function's contract, and no expert receives too much.
                unsafe {
                    pull.expert_major(rows, received);
                    publish(received, counters);
                }
            }
            Outputs::RankMajor(outputs) => {
                slots.place_by_rank(entries, self.shape.topk, settings.local_experts);
                zeros(received, settings.ranks);
                pull.count_by_source(received);
                self.declare_received(settings, peers, received)?;
                // SAFETY: this function's contract.
                unsafe {
                    pull.rank_major(&outputs, received);
                    publish(received, outputs.counters);
                }
            }
        }
        sent.operation = operation;
        Ok(())
    }
}

/// # Safety
/// `counters` is NULL or has an element for each count.
unsafe fn publish(counts: &[u32], counters: *mut i32) {
    if !counters.is_null() {
        for (i, &count) in counts.iter().enumerate() {
            // SAFETY: this function's contract.
            unsafe { counters.add(i).write(count as i32) };
        }
    }
}

/// A receiver at work.
struct Pull<'a> {
    settings: &'a Settings,
    destination: &'a DispatchDestination,
    me: usize,
    peers: &'a [&'a DispatchSource],
}

impl Pull<'_> {
    /// This rank's number of an expert, if it has it.
    fn local(&self, expert: u32) -> Option<usize> {
        let local = self.settings.local_experts;
        let own = (expert as usize).checked_sub(self.me * local)?;
        (own < local).then_some(own)
    }

    fn count_by_expert(&self, received: &mut [u32]) {
        let first = self.me * self.settings.local_experts;
        for peer in self.peers {
            let counts = &peer.per_expert(self.settings.experts)[first..];
            received.iter_mut().zip(counts).for_each(|(received, count)| *received += count);
        }
    }

    fn count_by_source(&self, received: &mut [u32]) {
        let topk = self.destination.shape.topk;
        for (peer, received) in self.peers.iter().zip(received) {
            let tokens = peer.experts(topk).chunks_exact(topk);
            *received = tokens.filter(|token| self.is_for_me(token)).count() as u32;
        }
    }

    fn is_for_me(&self, token: &[u32]) -> bool {
        token.iter().any(|&expert| self.local(expert).is_some())
    }

    /// # Safety
    /// The output has the layout's shape, and no expert receives more than its rows.
    unsafe fn expert_major(&self, rows: *mut u8, received: &mut [u32]) {
        let stride = self.settings.ranks * self.settings.max_tokens;
        let topk = self.destination.shape.topk;
        for peer in self.peers {
            for (i, &expert) in peer.experts(topk).iter().enumerate() {
                let Some(own) = self.local(expert) else { continue };
                let slot = own * stride + received[own] as usize;
                // SAFETY: this function's contract.
                unsafe { self.copy_row(peer, i / topk, rows, slot) };
                received[own] += 1;
            }
        }
    }

    /// # Safety
    /// The outputs have the layout's shapes.
    unsafe fn rank_major(&self, outputs: &RankMajor, received: &mut [u32]) {
        let RankMajor { rows, weights, ids, global, .. } = *outputs;
        let (topk, most) = (self.destination.shape.topk, self.settings.max_tokens);
        for (source, peer) in self.peers.iter().enumerate() {
            let mut slot = source * most;
            for (t, token) in peer.experts(topk).chunks_exact(topk).enumerate() {
                if !self.is_for_me(token) {
                    continue;
                }
                // SAFETY: this function's contract; a source has at most `max_tokens` tokens.
                unsafe {
                    self.copy_row(peer, t, rows, slot);
                    let from = peer.weights.add(t * topk);
                    core::ptr::copy_nonoverlapping(from, weights.add(slot * topk), topk);
                    for (k, &expert) in token.iter().enumerate() {
                        let id = match self.local(expert) {
                            Some(_) if global => expert as i32,
                            Some(own) => own as i32,
                            None => -1,
                        };
                        ids.add(slot * topk + k).write(id);
                    }
                }
                slot += 1;
            }
            for i in slot * topk..(source + 1) * most * topk {
                // SAFETY: as above: the whole index tensor is written on every dispatch.
                unsafe { ids.add(i).write(-1) };
            }
            received[source] = (slot - source * most) as u32;
        }
    }

    /// # Safety
    /// The slot exists.
    unsafe fn copy_row(&self, peer: &DispatchSource, token: usize, rows: *mut u8, slot: usize) {
        let DispatchDestination { scales, shape, .. } = *self.destination;
        let RowShape { bytes, scale_bytes, .. } = shape;
        // SAFETY: this function's contract; the token is one of the peer's, and scales have the
        // rows that tokens have.
        unsafe {
            let from = peer.rows.add(token * bytes);
            core::ptr::copy_nonoverlapping(from, rows.add(slot * bytes), bytes);
            if scale_bytes > 0 {
                let from = peer.scales.add(token * scale_bytes);
                let to = scales.add(slot * scale_bytes);
                core::ptr::copy_nonoverlapping(from, to, scale_bytes);
            }
        }
    }
}
