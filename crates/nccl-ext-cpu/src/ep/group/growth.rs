//! The low-latency buffer grows when a handle needs more (EP 3.4).

use super::object::View;
use crate::lock::lock;
use crate::queue::Deferral;
use crate::refusal::Outcome;
use crate::world::{Descriptor, KEYS};

/// All ranks make a handle that needs so much.
struct Grow {
    group: u64,
    bytes: u64,
}

// SAFETY: it points to nothing.
unsafe impl Descriptor for Grow {
    const NAME: &'static str = "ncclEpInitHandle";
    const KEY: [&'static str; KEYS] = ["group", "bytes of the buffer", "", "", "", ""];
    fn key(&self) -> [u64; KEYS] {
        [self.group, self.bytes, 0, 0, 0, 0]
    }
}

impl View<'_> {
    /// Makes room for a low-latency handle that needs so many bytes. Waits in the call for the
    /// device, and then for the other ranks; where calls are complete when they return there is
    /// nothing to wait for.
    pub(crate) fn grow(&self, bytes: u128) -> Outcome {
        let given = self.settings.rdma_buffer_size != 0;
        if given || self.member.deferral() == Deferral::Never {
            return Ok(());
        }
        let mut grown = lock(&self.shared.bytes);
        if bytes > *grown {
            // In-flight staged operations would be lost.
            lock(self.staging).require_nothing_pending()?;
            let bytes_key = u64::try_from(bytes).unwrap_or(u64::MAX);
            self.member.barrier(&Grow { group: self.index, bytes: bytes_key })?;
            *grown = bytes;
        }
        Ok(())
    }
}
