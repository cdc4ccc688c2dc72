//! Points in a stream's work, and the time between two of them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::backend::MemorySpace;
use crate::device::Device;
use crate::driver::{self, CuEvent};
use crate::error::Result;
use crate::rules;
use crate::rules::event::{ELAPSED, ElapsedFacts, PLACE, PairFacts};
use crate::stream::Stream;

/// A point in a stream's work, for timing.
///
/// On host backends, which finish every call before it returns, it is the time of
/// [`record`](Self::record).
#[doc(alias = "CUevent")]
pub struct Event {
    point: Point,
    device: Device,
}

enum Point {
    Host(Option<Instant>),
    Device(CuEvent),
}

// SAFETY: CUDA events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event on a device, or on a communicator's: `&comm`. It is not recorded yet.
    ///
    /// # Errors
    /// What the driver reports, [`Error::Unsupported`](crate::Error::Unsupported) without the
    /// driver function.
    #[doc(alias = "cuEventCreate")]
    pub fn new(device: impl Into<Device>) -> Result<Self> {
        let device = device.into();
        const NAME: &str = "cuEventCreate";
        let backend = device.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(Self { point: Point::Host(None), device });
        }
        let _current = device.activate()?;
        let call = backend.driver_function(backend.driver().event_create, NAME)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: `raw` outlives the call; 0 asks for an event that keeps time.
        backend.check_driver(NAME, unsafe { call(&mut raw, 0) })?;
        Ok(Self { point: Point::Device(raw), device })
    }

    /// Marks the end of what is enqueued on the stream so far.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a stream of another device; otherwise as [`new`](Self::new).
    #[doc(alias = "cuEventRecord")]
    pub fn record(&mut self, stream: Stream<'_>) -> Result<()> {
        const NAME: &str = "cuEventRecord";
        stream.check_on(self.device)?;
        let raw = match &mut self.point {
            Point::Host(time) => {
                *time = Some(Instant::now());
                return Ok(());
            }
            Point::Device(raw) => *raw,
        };
        let backend = self.device.backend();
        let _current = self.device.activate()?;
        let call = backend.driver_function(backend.driver().event_record, NAME)?;
        // SAFETY: the event was made here, the stream lives by the contract of its maker.
        backend.check_driver(NAME, unsafe { call(raw, stream.as_raw()) })
    }

    /// Waits until the work before the event has run. Returns at once when it was never recorded.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Driver`](crate::Error::Driver) when the work failed.
    #[doc(alias = "cuEventSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        const NAME: &str = "cuEventSynchronize";
        let Point::Device(raw) = self.point else { return Ok(()) };
        let backend = self.device.backend();
        let _current = self.device.activate()?;
        let call = backend.driver_function(backend.driver().event_synchronize, NAME)?;
        // SAFETY: the event was made here.
        backend.check_driver(NAME, unsafe { call(raw) })
    }

    /// Waits for this event, then gives the time from `start` to it, to about half a microsecond.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the two are of different devices or, on a
    /// host backend, one was never recorded; otherwise what the driver reports.
    #[doc(alias = "cuEventElapsedTime")]
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration> {
        const NAME: &str = "cuEventElapsedTime";
        let places = PairFacts { start: start.device, end: self.device };
        rules::check(PLACE, |broken| broken(&places))?;
        match (&self.point, &start.point) {
            (Point::Host(Some(end)), Point::Host(Some(start))) => {
                Ok(end.saturating_duration_since(*start))
            }
            (Point::Device(end), Point::Device(begin)) => {
                self.synchronize()?;
                let backend = self.device.backend();
                let _current = self.device.activate()?;
                let call = backend.driver_function(backend.driver().event_elapsed, NAME)?;
                let mut milliseconds = 0.0_f32;
                // SAFETY: both events were made here, `milliseconds` outlives the call.
                backend.check_driver(NAME, unsafe { call(&mut milliseconds, *begin, *end) })?;
                let seconds = f64::from(milliseconds.max(0.0)) / 1e3;
                Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
            }
            (end, _) => {
                let wrong = Some(match end {
                    Point::Host(None) => "an end that was never recorded",
                    _ => "a start that was never recorded",
                });
                let facts = ElapsedFacts { wrong };
                rules::check(ELAPSED, |broken| broken(&facts)).map(|()| Duration::ZERO)
            }
        }
    }
}

impl Drop for Event {
    #[doc(alias = "cuEventDestroy_v2")]
    fn drop(&mut self) {
        let Point::Device(raw) = self.point else { return };
        let Some(call) = self.device.backend().driver().event_destroy else { return };
        let current = self.device.activate();
        // SAFETY: the event was made here and is given up once.
        let code = unsafe { call(raw) };
        if current.is_err() || code != driver::CuResult::SUCCESS {
            tracing::error!(code = code.0, "a CUDA event was leaked");
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({})", self.device)
    }
}
