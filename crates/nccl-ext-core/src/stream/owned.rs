//! Streams of one's own.

use std::fmt;
use std::sync::Arc;

use super::Stream;
use super::object::StreamObject;
use crate::device::Device;
use crate::error::Result;

/// A stream of one's own on a device. It does not wait for the legacy default
/// stream, nor the other way round.
///
/// Its drop does not wait for the work that is enqueued on it. What was used on it remembers it, so
/// the native stream ends with the last that does.
///
/// Streams of this type are the cheapest to order: a buffer, a group or a runtime that is used on
/// one and the same stream adds a comparison. On any other stream, the default stream included, an
/// event is recorded after each use.
#[doc(alias = "cuStreamCreate")]
pub struct OwnedStream(Arc<StreamObject>);

impl OwnedStream {
    /// Makes a stream on a device, or on a communicator's: `&comm`.
    ///
    /// # Errors
    /// What the driver reports, [`Error::Unsupported`](crate::Error::Unsupported) without the
    /// driver function.
    pub fn new(device: impl Into<Device>) -> Result<Self> {
        StreamObject::new(device.into()).map(|object| Self(Arc::new(object)))
    }

    /// The stream, to be given to calls.
    #[must_use]
    pub fn stream(&self) -> Stream<'_> {
        Stream::of(&self.0)
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl fmt::Debug for OwnedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedStream({}, {})", self.0.number(), self.0.device())
    }
}
