//! A C++ exception, provoked for real: memory for a handle that the GPU does not have.

use nccl_ep::{Algorithm, Buffer, Comm, Error, Group, GroupConfig, HandleConfig, Layout, TopK};
use nccl_ext_core::Backend;

use super::rank_process::{ProcessError, Provoke, RankProcess};
use crate::failure::Failure;
use crate::routing::Routing;

/// Tokens of the group: its handles take 128 MiB and more.
const TOKENS: u32 = 1 << 18;
/// Elements of a token: so few that the group itself stays small.
const HIDDEN: u32 = 512;
/// What is left of the GPU's memory is less than this.
const LEFT: usize = 16 << 20;

const NAME: &str = "--provoke-exception";

/// Provokes it, and gives back what was seen.
pub(super) fn provoke(
    routing: &Routing,
    process: &RankProcess,
    backend: Backend,
    provoke: Provoke,
) -> Result<Vec<String>, Failure> {
    let run = || -> Result<Vec<String>, ProcessError> {
        let comm = process.comm(backend, routing.sizes.ranks, "exception")?;
        Ok(exhaust(&comm, routing)?)
    };
    let seen = match provoke {
        Provoke::SameThread => run(),
        Provoke::OtherThread => std::thread::scope(|scope| match scope.spawn(run).join() {
            Ok(seen) => seen,
            Err(_) => Err(ProcessError::Meeting(std::io::Error::other("a thread panicked"))),
        }),
    };
    seen.map_err(|error| process.failure(routing, NAME, error))
}

/// Fills the GPU and asks for a handle. The group and its communicator are lost by that, as they
/// must be; the rest is given back.
fn exhaust(comm: &Comm, routing: &Routing) -> Result<Vec<String>, Error> {
    let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    let config = GroupConfig::new()
        .algorithm(Algorithm::HighThroughput)
        .num_experts(number(routing.sizes.experts))
        .max_dispatch_tokens_per_rank(TOKENS)
        .max_recv_tokens_per_rank(TOKENS.saturating_mul(number(comm.size())))
        .max_token_bytes(2 * HIDDEN)
        .num_topk(number(routing.sizes.top_k));
    let group = Group::create(comm, &config)?;
    let make = || group.init_handle(Layout::Flat, &HandleConfig::new(), TopK::Auto, None);
    let needed = group.handle_mem_size(Layout::Flat, &HandleConfig::new(), TopK::Auto)?;
    let filler = fill(comm)?;
    let bytes: usize = filler.iter().map(Buffer::len).sum();
    let mut seen = vec![format!(
        "{bytes} bytes of the GPU taken, less than {LEFT} left; a handle needs {needed}"
    )];
    let made = make();
    match &made {
        Err(error @ Error::Exception { .. }) => seen.push(format!("as expected: {error}")),
        Err(error) => return Err(error.clone()),
        Ok(_) => {
            return Err(Error::Unsupported {
                feature: "an exception for want of memory",
                library: "the handle's allocation".into(),
                found: "success".into(),
                needs: "a full GPU".into(),
            });
        }
    }
    drop(made);
    match make() {
        Err(error) => seen.push(format!("the group afterwards: {error}")),
        Ok(_) => seen.push("the group afterwards: makes handles".into()),
    }
    Ok(seen)
}

/// Takes the GPU's memory, in pieces of halving size.
fn fill(comm: &Comm) -> Result<Vec<Buffer<u8>>, Error> {
    let mut filler = Vec::new();
    let mut piece = 64_usize << 30;
    while piece >= LEFT {
        match Buffer::zeroed(comm, piece) {
            Ok(buffer) => filler.push(buffer),
            Err(Error::Native { .. }) => piece /= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(filler)
}
