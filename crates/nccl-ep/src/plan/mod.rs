//! Memory that a configuration takes, known before anything is allocated.
//!
//! [`memory`] answers, for one rank, how many bytes of device memory a group, a handle and the
//! caller's own buffers need. It is arithmetic: it needs no communicator, no library and no GPU,
//! and reads no environment. A configuration that [`Group::create`](crate::Group::create),
//! [`Group::init_handle`](crate::Group::init_handle), a dispatch or a combine would refuse is
//! refused here with the same error.
//!
//! Formulas use the letters of the EP specification (`docs/src/spec/ep` of the repository): `R`
//! ranks, `E` experts, `L` experts of a rank, `M` most tokens a rank dispatches, `K` top-k, `H` hidden size, `MTB` most bytes of a token
//! row, `MR` most rows a rank receives, `SMs` of the device. Every [`Buffer`] and [`Piece`] carries
//! its formula and the section that it comes from.
//!
//! Not counted: what NCCL takes for the communicator, and the code of compiled kernels.
//!
//! ```
//! use nccl_ep::plan::{self, Owner, Setup};
//! use nccl_ep::*;
//!
//! // DeepSeek-V3 on eight ranks, decoding: hidden 7168 of bf16, 256 experts, top-8.
//! let config = GroupConfig::new()
//!     .num_experts(256)
//!     .max_dispatch_tokens_per_rank(128)
//!     .max_token_bytes(7168 * 2)
//!     .num_topk(8);
//! let memory = plan::memory(&Setup::new(config, 8, 7168))?;
//! let received = memory.buffer("received tokens").expect("every layout receives tokens");
//! assert_eq!((received.owner, received.bytes), (Owner::Caller, 32 * 8 * 128 * 7168 * 2));
//! # Ok::<_, Error>(())
//! ```

mod buffer;
mod bytes;
mod caller;
mod check;
mod constants;
mod high_throughput;
mod low_latency;
mod notes;
mod setup;
#[cfg(test)]
mod tests;

use nccl_ext_core::Result;
use nccl_ext_core::ids::IdCopies;

pub use buffer::{Buffer, Memory, Note, Owner, Piece};
pub use constants::{
    COUNTER_BLOCK_BYTES, HANDLE_PIECE_UNIT, HOPPER_SMS, LL_COUNTER_TAG, TOKENS_ONCE_SUPPORTED,
    WORKSPACE_BYTES,
};
pub use setup::Setup;

#[cfg(doc)]
use crate::Error;
use crate::enums::Algorithm;

/// The device memory of one rank: a group, one handle, and the buffers that the caller brings.
///
/// # Errors
/// [`Error::Invalid`] with the rule that group, handle, dispatch or combine
/// would refuse the configuration with, or with the rule `plan.bytes` for a buffer of more bytes
/// than 64 bits count.
/// [`Error::Unsupported`] for high throughput over several load/store
/// teams, whose buffers are not specified.
pub fn memory(setup: &Setup) -> Result<Memory> {
    let checked = check::check(setup)?;
    let mut buffers = match setup.group.algorithm {
        Algorithm::LowLatency => low_latency::buffers(setup, &checked)?,
        Algorithm::HighThroughput => high_throughput::buffers(setup, &checked)?,
    };
    buffers.push(ids(&checked)?);
    buffers.extend(caller::buffers(setup, &checked)?);
    Memory::new(buffers, notes::notes(setup, &checked))
}

/// The copy of the routing indices that the library reads (EP 3.5.1). This crate's, beside what
/// the library needs: no part of handle memory, and not in a snapshot.
fn ids(checked: &check::Checked) -> Result<Buffer> {
    let ids = bytes::product([8, checked.geometry.max_tokens, checked.topk]);
    let bytes = ids.and_then(|ids| ids.checked_add(IdCopies::HEAD_BYTES.into()));
    Buffer::plain(Owner::Handle, "expert ids", bytes, "256 + 8 M K", "EP 3.5.1")
}
