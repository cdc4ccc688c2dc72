//! Rules of communicators and their collectives.

use crate::raw_buffer::RawBuffer;
use crate::rules;

/// Who joins what.
pub(crate) struct JoinFacts {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl JoinFacts {
    /// Rank and size as NCCL counts them; `None` for a rank that cannot be.
    pub(crate) fn as_c(&self) -> Option<(i32, i32)> {
        let (rank, size) = (i32::try_from(self.rank).ok()?, i32::try_from(self.size).ok()?);
        (rank < size).then_some((rank, size))
    }
}

rules! {
    /// Checked when a rank joins a communicator.
    JOIN over plain JoinFacts {
        "comm.rank" on "rank": "a rank is one of the communicator's, which has at least one"
            ("NCCL ncclCommInitRank", Local)
            |f| f.as_c().is_none()
                => (format!("0 <= rank < size, 1 <= size <= {}", i32::MAX),
                    format!("rank {}, size {}", f.rank, f.size));
    }
}

/// The root of a collective that has one.
pub(crate) struct RootFacts {
    pub(crate) root: usize,
    pub(crate) ranks: usize,
}

rules! {
    /// Checked by collectives with a root.
    ROOT over plain RootFacts {
        "comm.root" on "root": "the root is a rank of the communicator"
            ("NCCL ncclBroadcast", Uniform)
            |f| f.root >= f.ranks => (format!("0..{}", f.ranks), f.root);
    }
}

/// The buffers of a collective that sends from one and receives into another.
pub(crate) struct ReceiveFacts {
    pub(crate) send: RawBuffer,
    pub(crate) recv: RawBuffer,
    /// How many times the sent bytes are received.
    pub(crate) factor: usize,
}

impl ReceiveFacts {
    fn fits(&self) -> bool {
        let needed = self.send.bytes.checked_mul(self.factor);
        self.send.data_type == self.recv.data_type && needed == Some(self.recv.bytes)
    }
}

rules! {
    /// Checked by all-gather and all-reduce.
    RECEIVE over plain ReceiveFacts {
        "comm.receive-buffer" on "recv":
            "the receive buffer has the send buffer's type, and room for every rank's part"
            ("NCCL ncclAllGather", Local)
            |f| !f.fits()
                => (format!("{} x {} bytes of {}", f.factor, f.send.bytes, f.send.data_type),
                    format!("{} bytes of {}", f.recv.bytes, f.recv.data_type));
    }
}
