//! One reshard as the caller asks for it: what is checked before it, and its native call. The same
//! for a call of its own and for an entry of a group.

use nccl_ext_core::rules::check;
use nccl_ext_core::{Comm, Error, Result, Stream, Use};
use nccl_m2n_sys::ncclM2nHandle_t;

use crate::dist_tensor::{Descriptor, Side};
use crate::library::Library;
use crate::plan::{Conditions, Plan};
use crate::rules::local::{self, StreamFacts, TileFacts};
use crate::window::Window;

/// The arguments of one reshard.
///
/// `'m`: the memory and the stream. A group borrows them for longer than the rest.
#[derive(Clone, Copy)]
pub(crate) struct ReshardCall<'a, 'm> {
    pub(crate) comm: &'a Comm,
    pub(crate) source: &'a Side<'m>,
    pub(crate) destination: &'a Side<'m>,
    pub(crate) window: Option<Window<'m>>,
    pub(crate) stream: Stream<'m>,
}

impl<'m> ReshardCall<'_, 'm> {
    /// The rules that every rank checks alike.
    pub(crate) fn check_layouts(&self, conditions: &Conditions) -> Result<()> {
        Plan::new(&self.source.layout, &self.destination.layout, conditions)?.accepted()
    }

    /// The rules that this rank alone can check: its memory and its stream.
    pub(crate) fn check_local(&self) -> Result<()> {
        self.check_tile("source", self.source)?;
        self.check_tile("destination", self.destination)?;
        let capturing = match self.stream.is_capturing(self.comm) {
            Ok(capturing) => Some(capturing),
            // A driver that cannot say so captures nothing that this program knows of.
            Err(Error::Unsupported { .. }) => None,
            Err(error) => return Err(error),
        };
        let facts = StreamFacts { capturing };
        check(local::STREAM, |broken| broken(&facts))
    }

    fn check_tile(&self, argument: &'static str, side: &Side<'_>) -> Result<()> {
        let rank = self.comm.rank();
        let facts = TileFacts {
            layout: &side.layout,
            buffer: side.buffer.as_ref(),
            rank,
            is_source: argument == "source",
        };
        check(local::TILE, |broken| broken(&facts))?;
        match side.tile_of(rank) {
            Some(tile) => self.comm.check_memory(argument, tile),
            None => Ok(()),
        }
    }

    /// The uses of this rank's tiles.
    pub(crate) fn uses(&self) -> [Use<'m>; 2] {
        let rank = self.comm.rank();
        [self.source.use_of(rank), self.destination.use_of(rank)]
    }

    /// Makes the native call, or records it where this thread records a group.
    ///
    /// # Errors
    /// What the library reports.
    ///
    /// # Safety
    /// The handle is live. The tiles are as large as the layouts say; they, the communicator and
    /// the stream stay valid until enqueued work is done, and those of a group at least until it
    /// has ended.
    pub(crate) unsafe fn call_native(
        &self,
        library: Library,
        handle: ncclM2nHandle_t,
    ) -> Result<()> {
        let mut from = Descriptor::new(self.source, self.comm.rank());
        let mut to = Descriptor::new(self.destination, self.comm.rank());
        let (raw, stream) = (self.comm.as_raw(), self.stream.as_raw());
        // SAFETY: this function's contract. The descriptors outlive the call, which copies them
        // (M2N 1.6).
        unsafe {
            let (from, to) = (from.bind(), to.bind());
            match self.window {
                None => {
                    let arguments = (handle, raw, from, to, stream);
                    library.call("ncclReshard", library.api.ncclReshard, arguments)
                }
                Some(window) => {
                    let arguments = (handle, raw, window.as_raw(), from, to, stream);
                    let function = library.api.ncclReshardWithWindow;
                    library.call("ncclReshardWithWindow", function, arguments)
                }
            }
        }
    }
}
