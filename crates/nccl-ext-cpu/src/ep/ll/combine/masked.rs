//! Combine in a group with masks: what goes into packets, and what comes out of them (EP 6.2).

use std::sync::Arc;

use crate::ep::group::View;
use crate::ep::ll::destination::CombineDestination;
use crate::ep::ll::state::{LastDispatch, ReceivedFrom, Staged};
use crate::ep::mask::{Masks, Packet, Rows, check_same_call};
use crate::ep::refusals::not_dispatched;
use crate::ep::staging::CombineSource;
use crate::queue;
use crate::refusal::{Outcome, require};
use crate::world::Descriptor;

/// Sends each active rank the rows that the last dispatch received from it.
///
/// # Safety
/// `source` has the layout's shape, with `bytes` a row and `stride` rows a region.
pub(super) unsafe fn send(
    group: &View<'_>,
    masks: &Masks,
    sent: &LastDispatch,
    source: &CombineSource,
    bytes: usize,
    stride: usize,
    expert_major: bool,
) -> Outcome<u64> {
    let settings = group.settings;
    let ranks = settings.ranks;
    let ReceivedFrom { dispatches, counts } = &sent.sources;
    let width = if expert_major { settings.local_experts } else { 1 };
    let received = dispatches.len() == ranks && counts.len() == ranks * width;
    require(received, not_dispatched)?;
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
                unsafe { rows.push(source.rows.add(row * bytes), count * bytes) };
            }
            starts.push(start);
            start += count;
            *first += count;
        }
        if !expert_major {
            starts.resize(ranks, 0);
        }
        let packet = Packet {
            name: CombineSource::NAME,
            clock: queue::clock(),
            key: source.key,
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
    masks.mailboxes.send(group.member.rank(), operation, packets);
    Ok(operation)
}

/// Waits for the rows of the active ranks, and sums them.
///
/// # Safety
/// As [`CombineDestination::sum`].
pub(super) unsafe fn receive(
    group: &View<'_>,
    masks: &Masks,
    sent: &LastDispatch,
    Staged { operation, key }: Staged,
    destination: &CombineDestination,
) -> Outcome {
    let packets = masks.collect(group.member, group.settings.timeout, operation);
    check_same_call(&packets, CombineSource::NAME, key, group.member.rank())?;
    let source = |packet: &Option<Arc<Packet>>| {
        // A rank that did not take part in the dispatch received nothing of it.
        let packet = packet.as_ref().filter(|packet| packet.dispatch == sent.operation);
        let (rows, starts) = packet.map_or((core::ptr::null(), core::ptr::null()), |packet| {
            (packet.rows.as_ptr(), packet.starts.as_ptr())
        });
        CombineSource { key, rows, starts }
    };
    let sources: Vec<_> = packets.iter().map(source).collect();
    // SAFETY: this function's contract. Who answers the dispatch has received all of it, so every
    // row is in its packet, and the packets stay until the sums are made.
    unsafe { destination.sum(group, sent, &sources.iter().collect::<Vec<_>>()) }
}
