//! A reshard outside of groups.

use nccl_ext_core::{Comm, Result, Stream, Use};

use super::Runtime;
use super::comm_state::CommState;
use crate::agreement::{self, Call, Intent};
use crate::dist_tensor::{DistTensor, DistTensorMut};
use crate::recording::refuse_in_group;
use crate::reshard_call::ReshardCall;
use crate::window::Window;

impl Runtime {
    /// Moves a tensor from the source's layout to the destination's. Every rank of the
    /// communicator calls it with the same two layouts, in the same order as its other calls on
    /// it; ranks that hold no tile pass inactive sides. Enqueues on `stream`: the work runs as if on
    /// it, whatever streams the library uses. The first call on a communicator waits for all ranks,
    /// and for a non-blocking communicator to be ready. A call on another stream than the one before
    /// it, or with a buffer that was used on another, waits for that on the device by itself.
    ///
    /// Tiles of source replicas hold the same; which of them is read is the load balance's choice.
    /// A tensor without elements is fine.
    ///
    /// # Errors
    /// * [`Error::Invalid`] when a rule of the call is broken (`call.*` in
    ///   [`rules`](crate::rules)): every rank gets it, nothing is sent, and the runtime stays
    ///   usable.
    /// * [`Error::Invalid`] of scope [`Local`](crate::Scope::Local) when this rank's memory
    ///   or stream is wrong. Where ranks compare ([`Agreement`](crate::Agreement)) its peers get
    ///   [`Error::PeerFailed`], and all may go on; else this rank is [`Error::Diverged`] afterwards.
    /// * [`Error::DigestMismatch`] when ranks compare and mean different things.
    /// * [`Error::Busy`] inside of a [`group`](Self::group).
    /// * What the library reports; the runtime is [`Error::Poisoned`] afterwards.
    ///
    /// [`Error::Invalid`]: crate::Error::Invalid
    /// [`Error::PeerFailed`]: crate::Error::PeerFailed
    /// [`Error::Diverged`]: crate::Error::Diverged
    /// [`Error::DigestMismatch`]: crate::Error::DigestMismatch
    /// [`Error::Busy`]: crate::Error::Busy
    /// [`Error::Poisoned`]: crate::Error::Poisoned
    #[doc(alias = "ncclReshard")]
    pub fn reshard(
        &self,
        comm: &Comm,
        source: &DistTensor<'_>,
        destination: &mut DistTensorMut<'_>,
        stream: Stream<'_>,
    ) -> Result<()> {
        self.run(&ReshardCall {
            comm,
            source: source.side(),
            destination: destination.side(),
            window: None,
            stream,
        })
    }

    /// As [`reshard`](Self::reshard), with a window that the library may use one day.
    ///
    /// # Errors
    /// As [`reshard`](Self::reshard).
    #[doc(alias = "ncclReshardWithWindow")]
    pub fn reshard_with_window(
        &self,
        comm: &Comm,
        window: Window<'_>,
        source: &DistTensor<'_>,
        destination: &mut DistTensorMut<'_>,
        stream: Stream<'_>,
    ) -> Result<()> {
        self.run(&ReshardCall {
            comm,
            source: source.side(),
            destination: destination.side(),
            window: Some(window),
            stream,
        })
    }

    fn run(&self, call: &ReshardCall<'_, '_>) -> Result<()> {
        refuse_in_group("a reshard outside of the group's scope")?;
        self.check_not_poisoned()?;
        let state = self.comm_state(call.comm)?;
        state.check_in_step()?;
        let (source, destination) = (call.source.layout, call.destination.layout);
        let digest = state.digest(&source, &destination);
        let known = state.agreed.contains(digest);
        if !known {
            call.check_layouts(&state.conditions)?;
        }
        let failed = call.check_local().err();
        if self.agreement.compares(known) {
            let calls = [Call::outside_of_groups(source, destination)];
            let intent = Intent { digest, calls: &calls, failed: failed.as_ref() };
            let exchanged = agreement::exchange_intents(&state.comm, &state.conditions, &intent);
            // A verdict leaves all ranks in step, whatever it is.
            exchanged.inspect_err(|error| state.diverge_after(error))??;
        } else if let Some(error) = failed {
            state.diverge_after(&error);
            return Err(error);
        }
        if !known {
            state.agreed.insert(digest);
        }
        self.issue(call, &state).inspect_err(|error| {
            self.poison(error);
            state.diverge_after(error);
        })
    }

    fn issue(&self, call: &ReshardCall<'_, '_>, state: &CommState) -> Result<()> {
        let _device = call.comm.activate()?;
        let ids = [state.next_call()];
        let _inside = self.caches.has_caches().then(|| self.caches.gate.enter(&ids));
        let _calls = call.comm.lock();
        let [source, destination] = call.uses();
        let uses = [Use::write(Some(&state.last_use)), source, destination];
        // SAFETY: the handle lives as long as the runtime. The tiles were checked against the
        // layouts; their owners keep them, and the stream, valid until enqueued work is done.
        call.comm
            .enqueue(call.stream, &uses, || unsafe { call.call_native(self.library, self.handle) })
    }
}
