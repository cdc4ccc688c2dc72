//! A world: the ranks that share a unique id, and how they meet.
//!
//! Every collective is the same dance. A rank *posts* a descriptor that points to its buffers,
//! waits until all have posted, *works* on everybody's buffers, and waits until all are done. Only
//! the first wait can end early, and a rank that gives up there takes its post back under the
//! lock, before anybody could have seen it complete. Once all have posted, everyone goes on to the
//! end, for copying cannot block. So no rank returns while a peer still touches its memory,
//! whatever fails.
//!
//! Posts are counted in *sequences*: one for the communicator, and one for each low-latency group,
//! whose staged sends stay posted while the communicator is used for other things. What a *staged*
//! post shows belongs to the group and outlives the call, so nobody waits for its readers. A rank
//! that meets staged posts in a full operation leaves a staged copy of its own behind as well: the
//! others may come for it much later.

mod join;
mod meeting;
mod member;
mod sequence;

pub(crate) use join::join;
pub(crate) use member::Member;
pub(crate) use sequence::{Descriptor, KEYS, SequenceId};
