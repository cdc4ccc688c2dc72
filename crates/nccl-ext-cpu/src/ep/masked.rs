//! Low-latency operations of a group with masks: what goes into packets, and what comes out of
//! them (EP 6.2). The rows are placed and summed by the code of all groups.

use std::sync::Arc;

use super::combine_ll::{self, Give};
use super::exchange::{Packet, Rows};
use super::group::View;
use super::low_latency::Sent;
use super::mask::Masks;
use super::receive_ll::{Offer, Receive};
use crate::refusal::{FailureClass, Outcome, Refusal, require};
use crate::world::{Descriptor, KEYS};

/// What a rank has received from each other, to be given back.
#[derive(Default)]
pub(super) struct Sources {
    /// The sender's number of the dispatch; 0 when nothing came.
    dispatches: Vec<u64>,
    /// Rows by source, then expert (expert-major); rows by source (rank-major).
    counts: Vec<u32>,
}

/// Sends each active rank the tokens that have an expert there.
///
/// # Safety
/// The offer is valid, with rows as `receive` says.
pub(super) unsafe fn send_dispatch(
    group: &View<'_>,
    masks: &Masks,
    offer: &Offer,
    receive: &Receive,
) -> u64 {
    let operation = masks.next_operation();
    let active = masks.active();
    let to = (0..group.settings.ranks).filter(|&rank| active[rank]);
    // SAFETY: this function's contract.
    let packet = |rank| unsafe { dispatch_packet(group, offer, receive, rank, operation) };
    let packets = to.map(|rank| (rank, packet(rank))).collect();
    masks.exchange.send(group.member.rank(), operation, packets);
    operation
}

/// # Safety
/// As [`send_dispatch`].
unsafe fn dispatch_packet(
    group: &View<'_>,
    offer: &Offer,
    receive: &Receive,
    to: usize,
    operation: u64,
) -> Packet {
    let settings = group.settings;
    let (local, topk) = (settings.local_experts, receive.topk);
    let owned = |&expert: &u32| expert as usize / local == to;
    let entries = offer.experts(topk);
    let tokens: Vec<_> = (0..offer.tokens)
        .filter(|token| entries[token * topk..][..topk].iter().any(owned))
        .collect();
    let mut packet = Packet {
        name: Offer::NAME,
        key: offer.key,
        number: operation,
        dispatch: operation,
        tokens: tokens.len(),
        rows: Rows::with_room(tokens.len() * receive.bytes),
        scales: Rows::with_room(tokens.len() * receive.scale_bytes),
        experts: Vec::with_capacity(tokens.len() * topk),
        per_expert: vec![0; settings.experts],
        weights: Vec::new(),
        starts: Vec::new(),
    };
    for token in tokens {
        let entries = &entries[token * topk..][..topk];
        packet.experts.extend_from_slice(entries);
        for &expert in entries.iter().filter(|expert| owned(expert)) {
            packet.per_expert[expert as usize] += 1;
        }
        // SAFETY: this function's contract.
        unsafe {
            packet.rows.push(offer.rows.add(token * receive.bytes), receive.bytes);
            if receive.scale_bytes > 0 {
                let scales = offer.scales.add(token * receive.scale_bytes);
                packet.scales.push(scales, receive.scale_bytes);
            }
            if !offer.weights.is_null() {
                let weights = core::slice::from_raw_parts(offer.weights.add(token * topk), topk);
                packet.weights.extend_from_slice(weights);
            }
        }
    }
    packet
}

/// Waits for the active ranks' tokens and takes them.
///
/// # Safety
/// As [`Receive::pull`].
pub(super) unsafe fn receive_dispatch(
    group: &View<'_>,
    masks: &Masks,
    sent: &mut Sent,
    operation: u64,
    key: [u64; KEYS],
    receive: &Receive,
) -> Outcome {
    let (settings, me) = (group.settings, group.member.rank());
    let packets = masks.collect(group, operation);
    check(&packets, Offer::NAME, key, me)?;
    let nothing = vec![0; settings.experts];
    let offer = |packet: &Option<Arc<Packet>>| match packet {
        Some(packet) => packet.offer(),
        None => Offer::nothing(key, &nothing),
    };
    let offers: Vec<_> = packets.iter().map(offer).collect();
    let peers: Vec<_> = offers.iter().collect();
    // SAFETY: this function's contract; the packets stay until the rows are copied.
    unsafe { receive.pull(group, sent, &peers, &[], operation)? };
    let Sources { dispatches, counts } = &mut sent.sources;
    dispatches.clear();
    dispatches.extend(packets.iter().map(|packet| packet.as_ref().map_or(0, |p| p.dispatch)));
    counts.clear();
    if receive.outputs.is_expert_major() {
        let own = me * settings.local_experts..(me + 1) * settings.local_experts;
        for offer in offers {
            counts.extend_from_slice(&offer.per_expert(settings.experts)[own.clone()]);
        }
    } else {
        counts.extend_from_slice(&sent.received);
    }
    Ok(())
}

/// Every rank is in the same operation as this one.
fn check(packets: &[Option<Arc<Packet>>], name: &str, key: [u64; KEYS], me: usize) -> Outcome {
    let other = packets.iter().enumerate().find_map(|(rank, packet)| {
        let packet = packet.as_ref()?;
        (packet.name != name || packet.key != key).then_some((rank, packet))
    });
    let Some((rank, packet)) = other else { return Ok(()) };
    let rule = "every rank makes the same calls in the same order";
    let expected = format_args!("{name} {key:?} as on rank {me}").to_string();
    let found = format_args!("{} {:?} of rank {rank}", packet.name, packet.key).to_string();
    let class = FailureClass::UndefinedBehaviour;
    Err(Refusal::usage(class, "handle", rule, expected, found))
}

/// Sends each active rank the rows that the last dispatch received from it.
///
/// # Safety
/// `give` has the layout's shape, with `bytes` a row and `stride` rows a region.
pub(super) unsafe fn send_combine(
    group: &View<'_>,
    masks: &Masks,
    sent: &Sent,
    give: &Give,
    bytes: usize,
    stride: usize,
    expert_major: bool,
) -> Outcome<u64> {
    let settings = group.settings;
    let ranks = settings.ranks;
    let Sources { dispatches, counts } = &sent.sources;
    let width = if expert_major { settings.local_experts } else { 1 };
    require(dispatches.len() == ranks && counts.len() == ranks * width, || {
        let rule = "a combine follows a dispatch of the handle";
        let class = FailureClass::UndefinedBehaviour;
        Refusal::usage(class, "handle", rule, "ncclEpDispatch before", "none")
    })?;
    let operation = masks.next_operation();
    let active = masks.active();
    // Sources lie one behind the other in an expert's rows; rank-major each has its own region.
    let mut first = vec![0_usize; width];
    let mut packets = Vec::new();
    for to in 0..ranks {
        let counts = &counts[to * width..][..width];
        let total: usize = counts.iter().map(|&count| count as usize).sum();
        let mut rows = Rows::with_room(if active[to] { total * bytes } else { 0 });
        let mut starts = Vec::with_capacity(if expert_major { width } else { ranks });
        let mut start = 0;
        for (region, (&count, first)) in counts.iter().zip(&mut first).enumerate() {
            let count = count as usize;
            if active[to] {
                let row = if expert_major { region * stride + *first } else { to * stride };
                // SAFETY: this function's contract; the dispatch filled those rows.
                unsafe { rows.push(give.rows.add(row * bytes), count * bytes) };
            }
            starts.push(start);
            start += count;
            *first += count;
        }
        if !expert_major {
            starts.resize(ranks, 0);
        }
        let packet = Packet {
            name: Give::NAME,
            key: give.key,
            number: operation,
            dispatch: dispatches[to],
            tokens: 0,
            rows,
            scales: Rows::default(),
            experts: Vec::new(),
            per_expert: Vec::new(),
            weights: Vec::new(),
            starts,
        };
        if active[to] {
            packets.push((to, packet));
        }
    }
    masks.exchange.send(group.member.rank(), operation, packets);
    Ok(operation)
}

/// Waits for what the active ranks give back, and sums it.
///
/// # Safety
/// As [`combine_ll::Receive::sum`].
pub(super) unsafe fn receive_combine(
    group: &View<'_>,
    masks: &Masks,
    sent: &Sent,
    operation: u64,
    key: [u64; KEYS],
    receive: &combine_ll::Receive,
) -> Outcome {
    let packets = masks.collect(group, operation);
    check(&packets, Give::NAME, key, group.member.rank())?;
    let give = |packet: &Option<Arc<Packet>>| {
        // A rank that did not take part in the dispatch has nothing of it to give back.
        let packet = packet.as_ref().filter(|packet| packet.dispatch == sent.operation);
        let (rows, starts) = packet.map_or((core::ptr::null(), core::ptr::null()), |packet| {
            (packet.rows.as_ptr(), packet.starts.as_ptr())
        });
        Give { key, rows, starts }
    };
    let gives: Vec<_> = packets.iter().map(give).collect();
    // SAFETY: this function's contract. Who answers the dispatch has received all of it, so every
    // row is in its packet, and the packets stay until the sums are made.
    unsafe { receive.sum(group, sent, &gives.iter().collect::<Vec<_>>()) };
    Ok(())
}

impl Packet {
    fn offer(&self) -> Offer {
        Offer {
            key: self.key,
            tokens: self.tokens,
            experts: self.experts.as_ptr(),
            per_expert: self.per_expert.as_ptr(),
            rows: self.rows.as_ptr(),
            scales: self.scales.as_ptr(),
            weights: self.weights.as_ptr(),
        }
    }
}

impl Offer {
    /// Of a rank that takes no part.
    fn nothing(key: [u64; KEYS], per_expert: &[u32]) -> Self {
        Self {
            key,
            tokens: 0,
            experts: core::ptr::NonNull::dangling().as_ptr(),
            per_expert: per_expert.as_ptr(),
            rows: core::ptr::null(),
            scales: core::ptr::null(),
            weights: core::ptr::null(),
        }
    }
}
