//! What the running work says of the bytes that it is about to use.

use super::clock::Clock;
use super::memory;
use super::running::with_running;
use crate::refusal::Outcome;

/// The running work is about to read these bytes.
pub(crate) fn read(from: *const u8, bytes: usize) -> Outcome {
    by_running(from.addr(), bytes, false)
}

/// The running work is about to write these bytes.
pub(crate) fn write(to: *mut u8, bytes: usize) -> Outcome {
    by_running(to.addr(), bytes, true)
}

fn by_running(address: usize, bytes: usize, writes: bool) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    with_running(|running| {
        let (actor, before, time) = running.now();
        memory::note(address, bytes, writes, actor, time, before)
    })
    .unwrap_or(Ok(()))
}

/// A peer that took `clock` writes these bytes, in its own order and not in the running work's.
pub(crate) fn write_as(clock: &Clock, to: *mut u8, bytes: usize) -> Outcome {
    match &clock.0 {
        Some(moment) if bytes > 0 => {
            memory::note(to.addr(), bytes, true, &moment.actor, moment.time, &moment.before)
        }
        _ => Ok(()),
    }
}
