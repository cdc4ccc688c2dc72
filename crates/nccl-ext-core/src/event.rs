//! Points in a stream's work, and the time between two of them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::backend::MemorySpace;
use crate::deadline;
use crate::device::Device;
use crate::driver::{self, CuEvent, CuResult};
use crate::error::Result;
use crate::rules;
use crate::rules::event::{ELAPSED, ElapsedFacts, PLACE, PairFacts};
use crate::stream::Stream;

/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: core::ffi::c_uint = 2;

/// A point in a stream's work: for timing, for waiting, and for order between streams
/// ([`Stream::wait`]).
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
        Self::with_flags(device.into(), 0)
    }

    /// An event that keeps no time: recorded and waited for faster.
    pub(crate) fn for_order(device: Device) -> Result<Self> {
        Self::with_flags(device, WITHOUT_TIME)
    }

    fn with_flags(device: Device, flags: core::ffi::c_uint) -> Result<Self> {
        const NAME: &str = "cuEventCreate";
        let backend = device.backend();
        if backend.memory() == MemorySpace::Host {
            return Ok(Self { point: Point::Host(None), device });
        }
        let _current = device.activate()?;
        let call = backend.driver_function(backend.driver().event_create, NAME)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: `raw` outlives the call; the flags are the driver's.
        backend.check_driver(NAME, unsafe { call(&mut raw, flags) })?;
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

    /// Whether the work before the event has run; true when it was never recorded. Asks, and does
    /// not wait.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    #[doc(alias = "cuEventQuery")]
    pub fn is_done(&self) -> Result<bool> {
        const NAME: &str = "cuEventQuery";
        let Point::Device(raw) = self.point else { return Ok(true) };
        let backend = self.device.backend();
        let _current = self.device.activate()?;
        let call = backend.driver_function(backend.driver().event_query, NAME)?;
        // SAFETY: the event was made here.
        match unsafe { call(raw) } {
            CuResult::NOT_READY => Ok(false),
            code => backend.check_driver(NAME, code).map(|()| true),
        }
    }

    /// As [`synchronize`](Self::synchronize), but no longer than `limit`. What still runs then goes
    /// on running: nothing can stop a kernel.
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout) past the limit; otherwise as
    /// [`synchronize`](Self::synchronize).
    pub fn wait_for(&self, limit: Duration) -> Result<()> {
        deadline::poll("waiting for an event", Some(limit), || self.is_done())
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

impl Stream<'_> {
    /// Makes everything that is enqueued on this stream from now on wait for the event. The host does
    /// not wait, and an event that was never recorded adds nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an event of another device than the stream's;
    /// otherwise as [`Event::new`].
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn wait(self, event: &Event) -> Result<()> {
        const NAME: &str = "cuStreamWaitEvent";
        self.check_on(event.device)?;
        let Point::Device(raw) = event.point else { return Ok(()) };
        let backend = event.device.backend();
        let _current = event.device.activate()?;
        let call = backend.driver_function(backend.driver().stream_wait_event, NAME)?;
        // SAFETY: the event was made here, the stream lives by the contract of its maker; 0 is the
        // only flag outside of captures.
        backend.check_driver(NAME, unsafe { call(self.as_raw(), raw, 0) })
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
