//! Dispatch in a group with masks: what goes into packets, and what comes out of them (EP 6.2).

use std::sync::Arc;

use crate::ep::group::View;
use crate::ep::ll::destination::DispatchDestination;
use crate::ep::ll::state::{LastDispatch, ReceivedFrom, Staged};
use crate::ep::mask::{Masks, Packet, Rows, check_same_call};
use crate::ep::staging::{DispatchSource, RowShape};
use crate::queue;
use crate::refusal::Outcome;
use crate::world::{Descriptor, KEYS};

/// Sends each active rank the tokens that have an expert there.
///
/// # Safety
/// The source is valid, with rows as `destination` says.
pub(super) unsafe fn send(
    group: &View<'_>,
    masks: &Masks,
    source: &DispatchSource,
    destination: &DispatchDestination,
) -> u64 {
    let operation = masks.next_operation();
    let active = masks.active();
    let to = (0..group.settings.ranks).filter(|&rank| active[rank]);
    // SAFETY: this function's contract.
    let packet = |rank| unsafe { packet(group, source, destination.shape, rank, operation) };
    let packets = to.map(|rank| (rank, packet(rank))).collect();
    masks.mailboxes.send(group.member.rank(), operation, packets);
    operation
}

/// # Safety
/// As [`send`].
unsafe fn packet(
    group: &View<'_>,
    source: &DispatchSource,
    shape: RowShape,
    to: usize,
    operation: u64,
) -> Packet {
    let settings = group.settings;
    let (local, topk) = (settings.local_experts, shape.topk);
    let owned = |&expert: &u32| expert as usize / local == to;
    let entries = source.experts(topk);
    let tokens: Vec<_> = (0..source.tokens)
        .filter(|token| entries[token * topk..][..topk].iter().any(owned))
        .collect();
    let mut packet = Packet {
        name: DispatchSource::NAME,
        clock: source.clock.clone(),
        key: source.key,
        number: operation,
        dispatch: operation,
        tokens: tokens.len(),
        rows: Rows::with_room(tokens.len() * shape.bytes),
        scales: Rows::with_room(tokens.len() * shape.scale_bytes),
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
            packet.rows.push(source.rows.add(token * shape.bytes), shape.bytes);
            if shape.scale_bytes > 0 {
                let scales = source.scales.add(token * shape.scale_bytes);
                packet.scales.push(scales, shape.scale_bytes);
            }
            if !source.weights.is_null() {
                let weights = core::slice::from_raw_parts(source.weights.add(token * topk), topk);
                packet.weights.extend_from_slice(weights);
            }
        }
    }
    packet
}

/// Waits for the active ranks' tokens and takes them.
///
/// # Safety
/// As [`DispatchDestination::pull`].
pub(super) unsafe fn receive(
    group: &View<'_>,
    masks: &Masks,
    sent: &mut LastDispatch,
    Staged { operation, key }: Staged,
    destination: &DispatchDestination,
) -> Outcome {
    let (settings, me) = (group.settings, group.member.rank());
    let packets = masks.collect(group.member, settings.timeout, operation);
    check_same_call(&packets, DispatchSource::NAME, key, me)?;
    let nothing = vec![0; settings.experts];
    let source = |packet: &Option<Arc<Packet>>| match packet {
        Some(packet) => source_in(packet),
        None => no_source(key, &nothing),
    };
    let sources: Vec<_> = packets.iter().map(source).collect();
    let peers: Vec<_> = sources.iter().collect();
    // SAFETY: this function's contract; the packets stay until the rows are copied.
    unsafe { destination.pull(group, sent, &peers, &[], operation)? };
    let ReceivedFrom { dispatches, counts } = &mut sent.sources;
    dispatches.clear();
    dispatches.extend(packets.iter().map(|packet| packet.as_ref().map_or(0, |p| p.dispatch)));
    counts.clear();
    if destination.outputs.is_expert_major() {
        let own = me * settings.local_experts..(me + 1) * settings.local_experts;
        for source in sources {
            counts.extend_from_slice(&source.per_expert(settings.experts)[own.clone()]);
        }
    } else {
        counts.extend_from_slice(&sent.received);
    }
    Ok(())
}

/// The tokens in a packet.
fn source_in(packet: &Packet) -> DispatchSource {
    DispatchSource {
        clock: packet.clock.clone(),
        key: packet.key,
        tokens: packet.tokens,
        experts: packet.experts.as_ptr(),
        per_expert: packet.per_expert.as_ptr(),
        rows: packet.rows.as_ptr(),
        scales: packet.scales.as_ptr(),
        weights: packet.weights.as_ptr(),
    }
}

/// Those of a rank that takes no part.
fn no_source(key: [u64; KEYS], per_expert: &[u32]) -> DispatchSource {
    DispatchSource {
        clock: queue::clock(),
        key,
        tokens: 0,
        experts: core::ptr::NonNull::dangling().as_ptr(),
        per_expert: per_expert.as_ptr(),
        rows: core::ptr::null(),
        scales: core::ptr::null(),
        weights: core::ptr::null(),
    }
}
