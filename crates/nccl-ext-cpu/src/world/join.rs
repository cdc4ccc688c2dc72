//! How ranks find each other by a unique id.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::meeting::World;
use super::member::Member;
use super::sequence::Descriptor;
use crate::config::{CpuConfig, ID_BYTES};
use crate::lock::lock;
use crate::refusal::{FailureClass, Outcome, Refusal};

/// Worlds whose ranks have not all come yet.
static JOINING: Mutex<BTreeMap<[u8; ID_BYTES], Joining>> = Mutex::new(BTreeMap::new());

struct Joining {
    world: Arc<World>,
    joined: Vec<bool>,
}

struct Join;

// SAFETY: it points to nothing.
unsafe impl Descriptor for Join {
    const NAME: &'static str = "ncclCommInitRank";
}

/// Joins the world of `id` and waits until all ranks have.
pub(crate) fn join(
    id: [u8; ID_BYTES],
    config: &CpuConfig,
    size: usize,
    rank: usize,
) -> Outcome<Arc<Member>> {
    let world = {
        let mut joining = lock(&JOINING);
        let entry = joining.entry(id).or_insert_with(|| Joining {
            world: Arc::new(World::new(size, config)),
            joined: vec![false; size],
        });
        if entry.world.size != size {
            return Err(Refusal::argument(
                FailureClass::Return,
                "nranks",
                "all ranks of a unique id give the same number of ranks",
                entry.world.size,
                size,
            ));
        }
        if std::mem::replace(&mut entry.joined[rank], true) {
            return Err(Refusal::argument(
                FailureClass::Return,
                "rank",
                "every rank joins once",
                "a rank that has not joined yet",
                rank,
            ));
        }
        let world = Arc::clone(&entry.world);
        if entry.joined.iter().all(|&joined| joined) {
            joining.remove(&id);
        }
        world
    };
    let member = Arc::new(Member::new(world, rank));
    crate::driver::note_device(member.device());
    member.barrier(&Join)?;
    Ok(member)
}
