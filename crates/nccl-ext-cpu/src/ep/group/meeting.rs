//! What ranks show each other when they create and destroy a group.

use std::sync::Arc;

use crate::ep::mask::Mailboxes;
use crate::ep::settings::{Algorithm, Settings};
use crate::refusal::{FailureClass, Outcome, Refusal};
use crate::world::{Descriptor, KEYS, Member, SequenceId};

/// All ranks create the group of that number.
pub(super) struct CreateGroup {
    pub(super) group: u64,
}

// SAFETY: it points to nothing.
unsafe impl Descriptor for CreateGroup {
    const NAME: &'static str = "ncclEpCreateGroup";
    const KEY: [&'static str; KEYS] = ["number", "", "", "", "", ""];
    fn key(&self) -> [u64; KEYS] {
        [self.group, 0, 0, 0, 0, 0]
    }
}

/// What ranks compare before they share a group.
struct CompareSettings {
    group: u64,
    settings: Settings,
    /// Rank 0's is everybody's.
    mailboxes: Option<Arc<Mailboxes>>,
}

// SAFETY: it points to nothing.
unsafe impl Descriptor for CompareSettings {
    const NAME: &'static str = "ncclEpCreateGroup";
    const KEY: [&'static str; KEYS] = CreateGroup::KEY;
    fn key(&self) -> [u64; KEYS] {
        [self.group, 0, 0, 0, 0, 0]
    }
}

/// All ranks destroy the group of that number.
pub(super) struct DestroyGroup {
    pub(super) group: u64,
}

// SAFETY: it points to nothing.
unsafe impl Descriptor for DestroyGroup {
    const NAME: &'static str = "ncclEpGroupDestroy";
    const KEY: [&'static str; KEYS] = CreateGroup::KEY;
    fn key(&self) -> [u64; KEYS] {
        [self.group, 0, 0, 0, 0, 0]
    }
}

/// Compares the settings of all ranks, and shares the mailboxes of a group with masks (EP 2.1 #25).
///
/// The vendor's library compares the first field and leaves the others undefined where they differ.
/// Here they would let one rank write beyond what another has, so they are refused as well.
pub(super) fn compare(
    member: &Member,
    index: u64,
    settings: Settings,
) -> Outcome<Option<Arc<Mailboxes>>> {
    type Field = (&'static str, fn(&Settings) -> u64);
    const FIELDS: [Field; 13] = [
        ("max_recv_tokens_per_rank", |s| s.max_recv),
        ("algorithm", |s| s.algorithm as u64),
        ("num_experts", |s| s.experts as u64),
        ("max_dispatch_tokens_per_rank", |s| s.max_tokens as u64),
        ("max_recv_tokens_per_rank", |s| u64::from(s.eager)),
        ("max_token_bytes", |s| s.max_token_bytes as u64),
        ("rdma_buffer_size", |s| s.rdma_buffer_size),
        ("max_num_sms", |s| u64::from(s.comm_sms)),
        ("zero_copy", |s| u64::from(s.zero_copy_on)),
        ("overflow_policy", |s| u64::from(s.drop)),
        ("num_topk", |s| s.num_topk as u64),
        ("the expert-major mode", |s| s.em_mode as u64),
        ("enable_mask", |s| u64::from(s.mask)),
    ];
    let masked = settings.mask && settings.algorithm == Algorithm::LowLatency;
    let mailboxes =
        (masked && member.rank() == 0).then(|| Arc::new(Mailboxes::new(settings.ranks)));
    let descriptor = CompareSettings { group: index, settings, mailboxes };
    member.collective(SequenceId::COMM, &descriptor, |peers, _| {
        for (i, (name, field)) in FIELDS.into_iter().enumerate() {
            let first = field(&peers[0].settings);
            let other = peers.iter().position(|peer| field(&peer.settings) != first);
            let Some(rank) = other else { continue };
            let class = if i == 0 { FailureClass::Throw } else { FailureClass::UndefinedBehaviour };
            let rule = "all ranks configure the group alike";
            let found = format_args!("{} on rank {rank}", field(&peers[rank].settings)).to_string();
            let expected = format_args!("{first} as on rank 0").to_string();
            return Err(Refusal::argument(class, name, rule, expected, found));
        }
        Ok(peers[0].mailboxes.clone())
    })?
}
