//! The receiving half of low-latency dispatch: every rank pulls its rows from what its peers
//! offer, in the order of source rank and token.

use super::group::View;
use super::low_latency::{Sent, zeros};
use super::settings::Settings;
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, KEYS};

/// What a rank offers to its peers.
pub(super) struct Offer {
    pub(super) key: [u64; KEYS],
    pub(super) tokens: usize,
    pub(super) experts: *const u32,
    pub(super) per_expert: *const u32,
    pub(super) rows: *const u8,
    /// NULL without scales.
    pub(super) scales: *const u8,
    /// NULL for expert-major.
    pub(super) weights: *const f32,
}

// SAFETY: the peers only read, and nobody changes what the pointers name during the operation.
unsafe impl Descriptor for Offer {
    const NAME: &'static str = "ncclEpDispatch";
    const KEY: [&'static str; KEYS] =
        ["group", "layout", "num_topk", "hidden", "datatype", "scale bytes"];
    fn key(&self) -> [u64; KEYS] {
        self.key
    }
}

// SAFETY: an offer is made to be read by other threads; its makers say how long.
unsafe impl Send for Offer {}
// SAFETY: as above.
unsafe impl Sync for Offer {}

impl Offer {
    /// Entries for each expert.
    pub(super) fn per_expert(&self, experts: usize) -> &[u32] {
        // SAFETY: the table has an entry for each expert, and nobody changes it while the offer
        // is shown.
        unsafe { core::slice::from_raw_parts(self.per_expert, experts) }
    }

    /// The expert of each entry of the top-k table.
    pub(super) fn experts(&self, topk: usize) -> &[u32] {
        // SAFETY: the table has `topk` entries a token, and nobody changes it while the offer is
        // shown.
        unsafe { core::slice::from_raw_parts(self.experts, self.tokens * topk) }
    }
}

/// Where a rank receives, and how.
#[derive(Clone, Copy)]
pub(super) struct Receive {
    pub(super) topk: usize,
    pub(super) bytes: usize,
    /// Bytes of a scale row, 0 without scales, and where those go.
    pub(super) scale_bytes: usize,
    pub(super) scales: *mut u8,
    pub(super) outputs: Outputs,
}

#[derive(Clone, Copy)]
pub(super) enum Outputs {
    ExpertMajor { rows: *mut u8, counters: *mut i32 },
    RankMajor { rows: *mut u8, weights: *mut f32, ids: *mut i32, counters: *mut i32, global: bool },
}

impl Outputs {
    pub(super) fn is_expert_major(&self) -> bool {
        matches!(self, Self::ExpertMajor { .. })
    }
}

// SAFETY: the caller keeps the outputs valid until the operation is complete, from whatever
// thread that is called.
unsafe impl Send for Receive {}

/// Duplicates in rows can exceed an expert's rows; the vendor's kernel then writes past them. All
/// ranks see the same counts and refuse together.
fn check_capacity(settings: &Settings, peers: &[&Offer]) -> Outcome {
    let room = settings.ranks * settings.max_tokens;
    for expert in 0..settings.experts {
        let counts = |peer: &&Offer| peer.per_expert(settings.experts)[expert] as usize;
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

impl Receive {
    /// Takes this rank's rows and notes where its own went: an expert-major slot counts from the
    /// first row of the sources that are not in `before`.
    ///
    /// # Safety
    /// The outputs are valid and have the layout's shapes.
    pub(super) unsafe fn pull(
        &self,
        group: &View<'_>,
        sent: &mut Sent,
        peers: &[&Offer],
        before: &[&Offer],
        operation: u64,
    ) -> Outcome {
        let (settings, me) = (group.settings, group.member.rank());
        let Sent { entries, slots, received, .. } = sent;
        let pull = Pull { settings, receive: self, me, peers };
        match self.outputs {
            Outputs::ExpertMajor { rows, counters } => {
                check_capacity(settings, peers)?;
                slots.place_by_expert(entries, before);
                zeros(received, settings.local_experts);
                // SAFETY: this function's contract, and no expert receives too much.
                unsafe {
                    pull.expert_major(rows, received);
                    publish(received, counters);
                }
            }
            Outputs::RankMajor { rows, weights, ids, counters, global } => {
                slots.place_by_rank(entries, self.topk, settings.local_experts);
                zeros(received, settings.ranks);
                // SAFETY: this function's contract.
                unsafe {
                    pull.rank_major(rows, weights, ids, global, received);
                    publish(received, counters);
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
    receive: &'a Receive,
    me: usize,
    peers: &'a [&'a Offer],
}

impl Pull<'_> {
    /// This rank's number of an expert, if it has it.
    fn local(&self, expert: u32) -> Option<usize> {
        let local = self.settings.local_experts;
        let own = (expert as usize).checked_sub(self.me * local)?;
        (own < local).then_some(own)
    }

    /// # Safety
    /// The output has the layout's shape, and no expert receives more than its rows.
    unsafe fn expert_major(&self, rows: *mut u8, received: &mut [u32]) {
        let stride = self.settings.ranks * self.settings.max_tokens;
        let topk = self.receive.topk;
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
    unsafe fn rank_major(
        &self,
        rows: *mut u8,
        weights: *mut f32,
        ids: *mut i32,
        global: bool,
        received: &mut [u32],
    ) {
        let (topk, most) = (self.receive.topk, self.settings.max_tokens);
        for (source, peer) in self.peers.iter().enumerate() {
            let mut slot = source * most;
            for (t, token) in peer.experts(topk).chunks_exact(topk).enumerate() {
                if token.iter().all(|&expert| self.local(expert).is_none()) {
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
    unsafe fn copy_row(&self, peer: &Offer, token: usize, rows: *mut u8, slot: usize) {
        let Receive { bytes, scale_bytes, scales, .. } = *self.receive;
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
