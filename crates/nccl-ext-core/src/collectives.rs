//! NCCL's collectives.

use crate::comm::Comm;
use crate::error::{Result, Scope};
use crate::memory::{DeviceBuffer, DeviceBufferMut};
use crate::raw::ncclRedOp_t;
use crate::raw_buffer::RawBuffer;
use crate::rules::{self, comm};
use crate::stream::Stream;
use crate::usage::Use;

/// How all-reduce combines values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ncclRedOp_t")]
pub enum Reduction {
    /// Sum.
    Sum,
    /// Product.
    Product,
    /// Largest.
    Max,
    /// Smallest.
    Min,
}

impl Reduction {
    fn as_raw(self) -> ncclRedOp_t {
        match self {
            Self::Sum => ncclRedOp_t::ncclSum,
            Self::Product => ncclRedOp_t::ncclProd,
            Self::Max => ncclRedOp_t::ncclMax,
            Self::Min => ncclRedOp_t::ncclMin,
        }
    }
}

/// A collective on another stream than the one before it waits for that on the device, as do the uses of
/// the buffers.
impl Comm {
    /// Gathers `send` of every rank into `recv`, in rank order. `recv` is `size` times as long.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for lengths, types, memory or a stream that do not fit; what
    /// the backend reports.
    #[doc(alias = "ncclAllGather")]
    pub fn all_gather<S, D>(&self, send: &S, recv: &mut D, stream: Stream<'_>) -> Result<()>
    where
        S: DeviceBuffer + ?Sized,
        D: DeviceBufferMut + ?Sized,
    {
        let from = send.usage();
        let (send, to) = (send.raw(), recv.raw_mut());
        let uses = [self.collective_use(), Use::read(from), Use::write(recv.usage())];
        self.check_pair(&send, &to, self.size(), stream)?;
        let count = send.bytes / send.data_type.size();
        let data_type = send.data_type.as_raw();
        let _device = self.activate()?;
        let _calls = self.lock();
        let function = self.backend().nccl().ncclAllGather;
        let arguments =
            (send.ptr.cast_const(), to.ptr, count, data_type, self.as_raw(), stream.as_raw());
        // SAFETY: `check_pair` made sure that both hold the elements; their owners keep them valid
        // until the enqueued work is done.
        self.enqueue(stream, &uses, || unsafe { self.call("ncclAllGather", function, arguments) })
    }

    /// Combines `send` of every rank element by element into every rank's `recv`.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    #[doc(alias = "ncclAllReduce")]
    pub fn all_reduce<S, D>(
        &self,
        send: &S,
        recv: &mut D,
        reduction: Reduction,
        stream: Stream<'_>,
    ) -> Result<()>
    where
        S: DeviceBuffer + ?Sized,
        D: DeviceBufferMut + ?Sized,
    {
        let from = send.usage();
        let (send, to) = (send.raw(), recv.raw_mut());
        let uses = [self.collective_use(), Use::read(from), Use::write(recv.usage())];
        self.check_pair(&send, &to, 1, stream)?;
        let count = send.bytes / send.data_type.size();
        let data_type = send.data_type.as_raw();
        let _device = self.activate()?;
        let _calls = self.lock();
        let function = self.backend().nccl().ncclAllReduce;
        let arguments = (
            send.ptr.cast_const(),
            to.ptr,
            count,
            data_type,
            reduction.as_raw(),
            self.as_raw(),
            stream.as_raw(),
        );
        // SAFETY: as in `all_gather`.
        self.enqueue(stream, &uses, || unsafe { self.call("ncclAllReduce", function, arguments) })
    }

    /// Copies `root`'s `buffer` to every rank's.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    #[doc(alias = "ncclBroadcast")]
    pub fn broadcast<B>(&self, buffer: &mut B, root: usize, stream: Stream<'_>) -> Result<()>
    where
        B: DeviceBufferMut + ?Sized,
    {
        let raw = buffer.raw_mut();
        let uses = [self.collective_use(), Use::write(buffer.usage())];
        let checked = self.check_memory("buffer", &raw);
        self.tell_if_local(checked.and_then(|()| self.check_stream(stream)))?;
        let facts = comm::RootFacts { root, ranks: self.size() };
        rules::check(comm::ROOT, |broken| broken(&facts))?;
        let root = root as i32; // less than the ranks, which NCCL counts in an `int`
        let count = raw.bytes / raw.data_type.size();
        let _device = self.activate()?;
        let _calls = self.lock();
        let function = self.backend().nccl().ncclBroadcast;
        let arguments = (
            raw.ptr.cast_const(),
            raw.ptr,
            count,
            raw.data_type.as_raw(),
            root,
            self.as_raw(),
            stream.as_raw(),
        );
        // SAFETY: as in `all_gather`; NCCL allows sending and receiving in place.
        self.enqueue(stream, &uses, || unsafe { self.call("ncclBroadcast", function, arguments) })
    }

    /// Passes on the verdict of a check before a collective. Only this rank knows its buffers:
    /// its peers would wait for it, so they are told, where the backend can.
    fn tell_if_local<T>(&self, checked: Result<T>) -> Result<T> {
        if let Err(error) = &checked
            && error.scope() == Scope::Local
        {
            self.fail(error);
        }
        checked
    }

    fn check_pair(
        &self,
        send: &RawBuffer,
        recv: &RawBuffer,
        factor: usize,
        stream: Stream<'_>,
    ) -> Result<()> {
        let checked = self.fits(send, recv, factor);
        self.tell_if_local(checked.and_then(|()| self.check_stream(stream)))
    }

    fn fits(&self, send: &RawBuffer, recv: &RawBuffer, factor: usize) -> Result<()> {
        self.check_memory("send", send)?;
        self.check_memory("recv", recv)?;
        let facts = comm::ReceiveFacts { send: *send, recv: *recv, factor };
        rules::check(comm::RECEIVE, |broken| broken(&facts))
    }
}
