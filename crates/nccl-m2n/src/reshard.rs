//! One reshard on its own.

use nccl_ext_core::{Comm, Error, Result, Stream};

use crate::agreement::{self, Call, Intent};
use crate::dist_tensor::{Descriptor, DistTensor, DistTensorMut, Side};
use crate::group;
use crate::layout::Layout;
use crate::member::Member;
use crate::plan::Plan;
use crate::rules::{self, local};
use crate::runtime::Runtime;
use crate::window::Window;

impl Runtime {
    /// Moves a tensor from the source's layout to the destination's. Every rank of the
    /// communicator calls it with the same two layouts, in the same order as its other calls on
    /// it; ranks that hold no tile pass inactive sides. Enqueues on `stream`: the work runs as if on
    /// it, whatever streams the library uses. The first call on a communicator waits for all ranks,
    /// and for a non-blocking communicator to be ready.
    ///
    /// Tiles of source replicas hold the same; which of them is read is the load balance's choice.
    /// A tensor without elements is fine.
    ///
    /// # Errors
    /// * [`Error::Invalid`] when a rule of the call is broken (`call.*` in
    ///   [`rules`](crate::rules)): every rank gets it, nothing is sent, and the runtime stays
    ///   usable.
    /// * [`Error::Invalid`] of scope [`Local`](crate::Scope::Local) when this rank's memory or stream is wrong.
    ///   Where ranks compare ([`Agreement`](crate::Agreement)) its peers get [`Error::PeerFailed`], and all may go
    ///   on; else this rank is [`Error::Diverged`] afterwards.
    /// * [`Error::DigestMismatch`] when ranks compare and mean different things.
    /// * [`Error::Busy`] inside of a [`group`](Self::group).
    /// * What the library reports; the runtime is [`Error::Poisoned`] afterwards.
    #[doc(alias = "ncclReshard")]
    pub fn reshard(
        &self,
        comm: &Comm,
        source: &DistTensor<'_>,
        destination: &mut DistTensorMut<'_>,
        stream: Stream<'_>,
    ) -> Result<()> {
        self.run(comm, source.side(), destination.side(), None, stream)
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
        self.run(comm, source.side(), destination.side(), Some(window), stream)
    }

    fn run(
        &self,
        comm: &Comm,
        source: &Side,
        destination: &Side,
        window: Option<Window<'_>>,
        stream: Stream<'_>,
    ) -> Result<()> {
        group::refuse_inside("a reshard outside of the group's scope")?;
        self.usable()?;
        let member = self.member(comm)?;
        member.in_step()?;
        let digest = member.digest(&source.layout, &destination.layout);
        let known = member.knows(digest);
        if !known {
            check_layouts(&member, &source.layout, &destination.layout)?;
        }
        let failed = check_memory(&member, source, destination, stream).err();
        if self.agreement.compares(known) {
            let calls = [Call::alone(source.layout, destination.layout)];
            let intent = Intent { digest, calls: &calls, failed: failed.as_ref() };
            // A verdict leaves all ranks in step, whatever it is.
            agreement::reach(&member, &intent)
                .inspect_err(|error| member.diverge_after(error))??;
        } else if let Some(error) = failed {
            member.diverge_after(&error);
            return Err(error);
        }
        if !known {
            member.learn(digest);
        }
        let result = self.call_native(&member, source, destination, window, stream);
        self.settle(&[&member], result)
    }

    fn call_native(
        &self,
        member: &Member,
        source: &Side,
        destination: &Side,
        window: Option<Window<'_>>,
        stream: Stream<'_>,
    ) -> Result<()> {
        let comm = &member.comm;
        let mut from = Descriptor::new(source, comm.rank());
        let mut to = Descriptor::new(destination, comm.rank());
        let _device = comm.activate()?;
        let tickets = [member.ticket()];
        let _pass = self.epoch.has_caches().then(|| self.epoch.gate.enter(&tickets));
        let _calls = comm.lock();
        let (api, raw, stream) = (self.library.api, comm.as_raw(), stream.as_raw());
        // SAFETY: handle and communicator live, the descriptors outlive the call, the tiles are as
        // large as the layouts say and stay valid until enqueued work is done.
        unsafe {
            let (from, to) = (from.bind(), to.bind());
            match window {
                None => {
                    let arguments = (self.handle, raw, from, to, stream);
                    self.library.call("ncclReshard", api.ncclReshard, arguments)
                }
                Some(window) => {
                    let arguments = (self.handle, raw, window.as_raw(), from, to, stream);
                    let function = api.ncclReshardWithWindow;
                    self.library.call("ncclReshardWithWindow", function, arguments)
                }
            }
        }
    }

    /// Passes on what a native collective gave. After an error the library is not used again.
    pub(crate) fn settle(&self, members: &[&Member], result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.poison(error);
            members.iter().for_each(|member| member.diverge_after(error));
        }
        result
    }
}

/// The rules that every rank checks alike.
pub(crate) fn check_layouts(member: &Member, source: &Layout, destination: &Layout) -> Result<()> {
    Plan::new(source, destination, &member.conditions)?.accepted()
}

/// The rules that this rank alone can check.
pub(crate) fn check_memory(
    member: &Member,
    source: &Side,
    destination: &Side,
    stream: Stream<'_>,
) -> Result<()> {
    let (comm, rank) = (&member.comm, member.comm.rank());
    for (side, is_source) in [(source, true), (destination, false)] {
        let facts =
            local::Facts { layout: &side.layout, buffer: side.buffer.as_ref(), rank, is_source };
        rules::check(local::RULES, |broken| broken(&facts))?;
        if let Some(tile) = side.tile_of(rank) {
            comm.check_memory(if is_source { "source" } else { "destination" }, tile)?;
        }
    }
    refuse_capture(comm, stream)
}

/// The library refuses a captured stream as well, on the rank that captures.
fn refuse_capture(comm: &Comm, stream: Stream<'_>) -> Result<()> {
    match stream.is_capturing(comm) {
        // A driver that cannot say so captures nothing that this program knows of.
        Ok(false) | Err(Error::Unsupported { .. }) => Ok(()),
        Ok(true) => Err(local::CAPTURE.broken(rules::Violation::new(
            "a stream that is not being captured",
            "a capturing stream",
        ))),
        Err(error) => Err(error),
    }
}
