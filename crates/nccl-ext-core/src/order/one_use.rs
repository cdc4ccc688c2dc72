//! One stream that something was used on, and waiting for it.

use std::sync::Arc;

use super::event_pool::EventPool;
use crate::deadline;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::raw::cudaStream_t;
use crate::stream::{Stream, StreamObject};

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// Uses on one stream, of which the last one matters.
pub(super) enum OneUse {
    /// A stream of ours, kept alive. An event is recorded there when somebody must wait for it.
    Ours(Arc<StreamObject>),
    /// A stream that something else owns, and that is never asked anything later.
    Foreign {
        raw: cudaStream_t,
        /// The end of the last use; `None` until there is one that the host has not waited for.
        end: Option<Event>,
        /// Uses that were begun and whose end is not recorded.
        open: u32,
    },
}

// SAFETY: the address of a foreign stream is only compared.
unsafe impl Send for OneUse {}

impl OneUse {
    pub(super) fn new(stream: Stream<'_>) -> Self {
        match stream.object() {
            Some(object) => Self::Ours(Arc::clone(object)),
            None => Self::Foreign { raw: stream.as_raw(), end: None, open: 0 },
        }
    }

    /// Whether a use on `stream` can stand for it, once it is ordered after it. The per-thread
    /// stream's name stands for many streams.
    pub(super) fn is_on(&self, stream: Stream<'_>) -> bool {
        match self {
            Self::Ours(object) => object.number() == stream.number(),
            Self::Foreign { raw, .. } => {
                stream.number() == 0 && *raw == stream.as_raw() && raw.addr() != PER_THREAD
            }
        }
    }

    /// Whether a use that has begun on `stream` may be this one.
    pub(super) fn is_open_on(&self, stream: Stream<'_>) -> bool {
        match self {
            Self::Ours(_) => false,
            Self::Foreign { raw, open, .. } => *open > 0 && *raw == stream.as_raw(),
        }
    }

    /// A use begins whose end is recorded later, on streams that something else owns.
    pub(super) fn open(&mut self) {
        if let Self::Foreign { open, .. } = self {
            *open = open.saturating_add(1);
        }
    }

    /// The end of a use that was begun on `stream`.
    pub(super) fn record_end(
        &mut self,
        stream: Stream<'_>,
        device: Device,
        pool: &mut EventPool,
    ) -> Result<()> {
        let Self::Foreign { end, open, .. } = self else { return Ok(()) };
        let event = match end {
            Some(event) => event,
            None => end.insert(pool.take(device)?),
        };
        event.record(stream)?;
        *open -= 1;
        Ok(())
    }

    /// A use that was begun is done: the host has waited for it.
    pub(super) fn close(&mut self) {
        if let Self::Foreign { open, .. } = self {
            *open = open.saturating_sub(1);
        }
    }

    /// Whether it is surely the same stream. An address other than NULL may have been given to a new
    /// stream meanwhile.
    fn is_surely_on(&self, stream: Stream<'_>) -> bool {
        match self {
            Self::Ours(object) => object.number() == stream.number(),
            Self::Foreign { raw, .. } => {
                raw.is_null() && stream.as_raw().is_null() && stream.number() == 0
            }
        }
    }

    /// Makes `stream` wait for it, unless it is there.
    pub(super) fn order_before(
        &self,
        stream: Stream<'_>,
        device: Device,
        pool: &mut EventPool,
    ) -> Result<()> {
        if self.is_surely_on(stream) {
            return Ok(());
        }
        match self {
            Self::Ours(object) => {
                let mut event = pool.take(device)?;
                let ordered = event.record(Stream::of(object)).and_then(|()| {
                    self.refuse_if_abandoned(device, &event)?;
                    stream.wait(&event)
                });
                // A stream waits for what the event was when it was told to: it can be used again.
                pool.give_back(event);
                ordered
            }
            Self::Foreign { end: None, open: 0, .. } => Ok(()),
            Self::Foreign { end: Some(end), open: 0, .. } => {
                self.refuse_if_abandoned(device, end)?;
                stream.wait(end)
            }
            // Its end was never recorded, since the driver failed then.
            Self::Foreign { .. } => device.activate()?.synchronize(),
        }
    }

    /// Waits on the host until it is done, or until it is abandoned.
    pub(super) fn wait(&self, device: Device, pool: &mut EventPool) -> Result<()> {
        match self {
            Self::Ours(object) => {
                let mut event = pool.take(device)?;
                let waited = event
                    .record(Stream::of(object))
                    .and_then(|()| self.wait_for_event(device, &event));
                pool.give_back(event);
                waited
            }
            Self::Foreign { end: None, open: 0, .. } => Ok(()),
            Self::Foreign { end: Some(end), open: 0, .. } => self.wait_for_event(device, end),
            Self::Foreign { .. } => device.activate()?.synchronize(),
        }
    }

    /// Asks rather than waits: another thread may abandon the stream meanwhile.
    fn wait_for_event(&self, device: Device, event: &Event) -> Result<()> {
        deadline::poll("waiting for the last use", None, || {
            Ok(event.is_done()? || self.refuse_if_abandoned(device, event).map(|()| false)?)
        })
    }

    /// Whether it is done, without waiting. What was begun and never ended is not.
    pub(super) fn is_done(&self, device: Device) -> Result<bool> {
        match self {
            // An event that was recorded just now would not be done yet.
            Self::Ours(object) => Stream::of(object).is_done(device),
            Self::Foreign { open: 0, end, .. } => end.as_ref().map_or(Ok(true), Event::is_done),
            Self::Foreign { .. } => Ok(false),
        }
    }

    /// Whether nothing can follow it on its stream, and it is done.
    pub(super) fn is_over(&self, device: Device) -> bool {
        match self {
            Self::Ours(object) => {
                object.is_released() && matches!(Stream::of(object).is_done(device), Ok(true))
            }
            Self::Foreign { open: 0, end, .. } => {
                end.as_ref().is_none_or(|end| matches!(end.is_done(), Ok(true)))
            }
            Self::Foreign { .. } => false,
        }
    }

    /// Nobody waits for its stream any more.
    pub(super) fn abandon(&self, device: Device, cause: &Arc<Error>) {
        match self {
            Self::Ours(object) => object.abandon(cause),
            Self::Foreign { raw, .. } => {
                device.backend().abandoned().add_stream(device.ordinal(), *raw, cause);
            }
        }
    }

    /// Refuses to wait for work that is not done, and that nobody waits for any more.
    fn refuse_if_abandoned(&self, device: Device, event: &Event) -> Result<()> {
        let cause = match self {
            Self::Ours(object) => object.abandoned().cloned(),
            Self::Foreign { raw, .. } => {
                device.backend().abandoned().cause_of_stream(device.ordinal(), *raw)
            }
        };
        match cause {
            Some(cause) if !event.is_done()? => Err(Error::Poisoned { cause }),
            _ => Ok(()),
        }
    }

    /// Its event, if it has one of its own.
    pub(super) fn into_event(self) -> Option<Event> {
        match self {
            Self::Ours(_) => None,
            Self::Foreign { end, .. } => end,
        }
    }
}
