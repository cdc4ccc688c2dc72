//! Streams' work: when it runs, which bytes it uses, and whether that has an order.
//!
//! A C function checks its arguments on the calling thread and submits the rest. In a world whose
//! calls are complete when they return, that runs at once, and nothing here costs anything. In a
//! deferred one each stream is a queue with a thread of its own, and each stream and each rank's
//! host threads have a vector clock:
//!
//! ```text
//! clock                   what happened before what
//! uses  memory            who uses which bytes; two uses without an order are refused
//! host  running           the clock of a host thread, and of the work that a stream runs
//! declare  block          what running work says that it uses
//! event  stream  delay    points in streams' work, the queues, and the seed's delays
//! submit                  the way in
//! ```

mod block;
mod clock;
mod declare;
mod delay;
mod event;
mod host;
mod memory;
mod running;
mod stream;
mod submit;
mod uses;

use std::sync::Arc;

use nccl_ext_core::Error;

pub(crate) use block::Block;
pub(crate) use clock::Clock;
pub(crate) use declare::{read, write, write_as};
pub(crate) use event::Point;
pub(crate) use host::{Rank, belong_to};
pub(crate) use memory::{allocate, is_device};
pub(crate) use running::{clock, join};
pub(crate) use stream::Stream;
pub(crate) use submit::{
    CallOrder, Deferral, drain, submit, submit_and_wait, submit_in_order, submit_in_turn,
    wait_for_stream,
};

use crate::refusal::Outcome;

/// Frees memory of the deferred backend, as the calling thread's doing.
pub(crate) fn free(address: usize) -> Outcome {
    host::act("ncclMemFree", |actor, time, before| memory::free(address, actor, time, before))
}

/// The calling thread itself is about to read these bytes, in `call`.
pub(crate) fn read_on_host(
    deferral: Deferral,
    call: &'static str,
    from: *const u8,
    bytes: usize,
) -> Outcome {
    let Deferral::Of(rank) = deferral else { return Ok(()) };
    if let Some(rank) = Rank::find(rank) {
        belong_to(&rank);
    }
    host::act(call, |actor, time, before| {
        memory::note(from.addr(), bytes, false, actor, time, before)
    })
}

/// The stream behind a handle that a driver's function got.
pub(crate) fn stream(handle: nccl_ext_core::raw::cudaStream_t, device: i32) -> Option<Arc<Stream>> {
    stream::find(handle, None, device)
}

/// Makes a stream; its handle.
pub(crate) fn create_stream(device: i32) -> Option<nccl_ext_core::raw::cudaStream_t> {
    stream::create(device)
}

/// Ends a stream once its work is done; whether it was one.
pub(crate) fn destroy_stream(handle: nccl_ext_core::raw::cudaStream_t) -> bool {
    stream::destroy(handle)
}

/// The calling thread waits for all streams of its rank or, where it belongs to none, for those of the
/// device that belong to none.
pub(crate) fn wait_for_device(device: i32) -> Result<(), Arc<Error>> {
    stream::wait_for_all(host::mine().as_ref(), device)
}

/// A rank has left: its default streams end with their work.
pub(crate) fn end_default_streams(rank: &Rank) {
    stream::end_defaults(rank.id());
}
