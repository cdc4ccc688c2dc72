//! What remembers where something was used last.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::event_pool::EventPool;
use super::one_use::OneUse;
use crate::backend::MemorySpace;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::usage::{Access, LatestUse, Usage};

/// The streams of the last uses of one thing, for its memory or its state.
///
/// * A read waits for the last write; reads on several streams, from several threads, run at the
///   same time. A write waits for the last write and for the reads after it.
/// * On one and the same [`OwnedStream`](crate::OwnedStream) a use adds a comparison. When the stream
///   changes, an event is recorded on the earlier one, and the later one waits for it: on the device,
///   not here. That event stands for all that the earlier stream was given so far.
/// * Streams of ours stay alive while they are remembered. Any other stream (the default stream,
///   the per-thread one, [`Stream::from_raw`]) is asked nothing after the use: an event is recorded
///   there right after it.
/// * A stream of something else that is being captured into a graph adds nothing and is not
///   remembered, since no event may cross the border of a capture. Whoever captures orders the graph's
///   launches with everything else.
/// * On backends whose calls are done when they return nothing is remembered.
///
/// Uses that write, and waits of the host, must not run at the same time as other uses of the same
/// thing: a `&mut` borrow or a lock makes sure of it.
///
/// Nothing waits in the drop of this type: its owner calls [`wait`](Self::wait) before it frees what
/// was used.
pub struct LastUse {
    device: Device,
    latest: LatestUse,
    uses: Mutex<Uses>,
}

struct Uses {
    writer: Option<OneUse>,
    /// Since the last write, on other streams than its.
    readers: Vec<OneUse>,
    pool: EventPool,
}

/// Readers from which on those that are over are forgotten before another one is remembered.
const MANY: usize = 8;

impl LastUse {
    /// Not used yet.
    #[must_use]
    pub const fn new(device: Device) -> Self {
        let uses = Uses { writer: None, readers: Vec::new(), pool: EventPool::new() };
        Self { device, latest: LatestUse::new(), uses: Mutex::new(uses) }
    }

    /// Waits on the host until every use so far is done, and forgets them.
    ///
    /// # Errors
    /// What the driver reports, also of the work itself; [`Error::Poisoned`] when a communicator that
    /// the work belongs to was [aborted](crate::Comm::abort) and it is not done. The uses that are
    /// left stay remembered: what they use must not be freed.
    pub fn wait(&self) -> Result<()> {
        let mut uses = self.lock();
        let Uses { writer, readers, pool } = &mut *uses;
        self.latest.set(0, false);
        for reader in readers.iter() {
            reader.wait(self.device, pool)?;
        }
        if let Some(writer) = writer {
            writer.wait(self.device, pool)?;
        }
        uses.forget();
        Ok(())
    }

    /// Waits on the host until the last write is done.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for_write(&self) -> Result<()> {
        let mut uses = self.lock();
        let Uses { writer, pool, .. } = &mut *uses;
        match writer {
            Some(writer) => writer.wait(self.device, pool),
            None => Ok(()),
        }
    }

    /// Whether every use so far is done, without waiting. Of streams of ours all that they were given
    /// so far is asked for.
    ///
    /// # Errors
    /// What the driver reports, also of the work itself.
    pub fn is_done(&self) -> Result<bool> {
        let uses = self.lock();
        for used in uses.writer.iter().chain(uses.readers.iter()) {
            if !used.is_done(self.device)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nobody waits any more for work on the streams of the last uses.
    pub(crate) fn abandon(&self, cause: &Arc<Error>) {
        let uses = self.lock();
        for used in uses.writer.iter().chain(&uses.readers) {
            used.abandon(self.device, cause);
        }
    }

    /// Forgets uses that are known to be done, since the host waited for a later one.
    pub(crate) fn forget(&mut self) {
        self.latest.set(0, false);
        self.uses.get_mut().unwrap_or_else(PoisonError::into_inner).forget();
    }

    fn lock(&self) -> MutexGuard<'_, Uses> {
        // Nothing panics while it is held.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A use that a comparison does not settle.
    fn order(&self, stream: Stream<'_>, access: Access) -> Result<()> {
        if self.device.backend().memory() == MemorySpace::Host {
            return Ok(());
        }
        let foreign = stream.number() == 0;
        // The default stream cannot be captured.
        if foreign && !stream.as_raw().is_null() && stream.is_capturing(self.device)? {
            return Ok(());
        }
        let mut uses = self.lock();
        match access {
            Access::Read => uses.order_read(stream, self.device)?,
            Access::Write => uses.order_write(stream, self.device)?,
        }
        let alone = uses.readers.is_empty() && uses.writer.is_some();
        self.latest.set(stream.number(), alone);
        Ok(())
    }

    /// Records the end of a use on a stream that something else owns.
    fn record_end(&self, stream: Stream<'_>) -> Result<()> {
        let mut uses = self.lock();
        let Uses { writer, readers, pool } = &mut *uses;
        match readers.iter_mut().chain(writer).find(|used| used.is_open_on(stream)) {
            Some(used) => used.record_end(stream, self.device, pool),
            None => Ok(()), // it is being captured
        }
    }

    /// In place of [`after`](Usage::after) when the host has waited for the use.
    pub(crate) fn after_wait(&self, stream: Stream<'_>) {
        if stream.number() == 0 {
            let mut uses = self.lock();
            let Uses { writer, readers, .. } = &mut *uses;
            if let Some(used) = readers.iter_mut().chain(writer).find(|u| u.is_open_on(stream)) {
                used.close();
            }
        }
    }
}

impl Usage for LastUse {
    #[inline]
    fn latest(&self) -> Option<&LatestUse> {
        Some(&self.latest)
    }

    fn before(&self, stream: Stream<'_>, access: Access) -> Result<()> {
        let number = stream.number();
        if number != 0 && self.latest.is_settled(number, access) {
            return Ok(());
        }
        self.order(stream, access)
    }

    fn after(&self, stream: Stream<'_>, _: Access) -> Result<()> {
        let done = stream.number() != 0 || self.device.backend().memory() == MemorySpace::Host;
        if done { Ok(()) } else { self.record_end(stream) }
    }
}

impl Uses {
    fn order_read(&mut self, stream: Stream<'_>, device: Device) -> Result<()> {
        let Self { writer, readers, pool } = self;
        // A reader was ordered after the writer.
        if let Some(reader) = readers.iter_mut().find(|reader| reader.is_on(stream)) {
            // One that is being used there right now is the same stream.
            if !reader.is_open_on(stream) {
                reader.order_before(stream, device, pool)?;
            }
            reader.open();
            return Ok(());
        }
        if let Some(writer) = writer {
            writer.order_before(stream, device, pool)?;
            if writer.is_on(stream) {
                writer.open();
                return Ok(());
            }
        }
        if readers.len() >= MANY {
            forget_where(readers, pool, |reader| reader.is_over(device));
        }
        let mut reader = OneUse::new(stream);
        reader.open();
        readers.push(reader);
        Ok(())
    }

    fn order_write(&mut self, stream: Stream<'_>, device: Device) -> Result<()> {
        let Self { writer, readers, pool } = self;
        for used in readers.iter().chain(writer.iter()) {
            used.order_before(stream, device, pool)?;
        }
        let mut next = OneUse::new(stream);
        next.open();
        self.forget();
        self.writer = Some(next);
        Ok(())
    }

    fn forget(&mut self) {
        forget_where(&mut self.readers, &mut self.pool, |_| true);
        if let Some(event) = self.writer.take().and_then(OneUse::into_event) {
            self.pool.give_back(event);
        }
    }
}

/// Forgets some uses, and keeps their events.
fn forget_where(
    uses: &mut Vec<OneUse>,
    pool: &mut EventPool,
    mut over: impl FnMut(&OneUse) -> bool,
) {
    for used in uses.extract_if(.., |used| over(used)) {
        if let Some(event) = used.into_event() {
            pool.give_back(event);
        }
    }
}

impl fmt::Debug for LastUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastUse").field("device", &self.device).finish_non_exhaustive()
    }
}
