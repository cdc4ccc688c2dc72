//! Giving a handle the routing of a step.

use nccl_ext_core::{Refused, Result, Stream};

use super::Step;
#[cfg(doc)]
use crate::Error;
use crate::args::LayoutInfo;
use crate::handle::{Handle, Looked};
use crate::tensor::Tensor;

impl Handle {
    /// Gives the handle the routing of the next step: `topk_idx` is `[tokens, top-k]` of int32 or
    /// int64 global expert ids. Any negative id says "no expert", in either algorithm and on every
    /// backend, as -1 does.
    ///
    /// The stream copies the ids into memory of the handle and looks at each of them there. The
    /// library reads the copy, so the caller's ids may be written again by work that is enqueued on
    /// this stream, or freed, as soon as this returns. HT: every rank calls it, and `layout_info` may
    /// ask for counters. LL: local.
    ///
    /// What would corrupt memory becomes -1: an id that is no expert's; in low-latency expert-major
    /// one that stands earlier in its row, too; and in high throughput's duplicating expert-major
    /// mode a token's ninth expert of one rank. In high throughput an id that stands twice in its row
    /// stays, although one of its weights is lost (EP 4.16). All of these are counted, and
    /// [a call of the step](Step#wrong-ids) says so; in low-latency rank-major an id may stand
    /// twice. [`Validation::Data`](crate::Validation::Data) waits for the ids instead and refuses
    /// what is wrong with [`Error::Invalid`] before anything is called.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of updates is broken; [`Error::Unsupported`] when the driver
    /// cannot run the kernel that looks at ids; and the errors of [every call](crate#errors).
    #[doc(alias = "ncclEpUpdateHandle")]
    pub fn update(
        &mut self,
        topk_idx: Tensor<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'_>> {
        let (ids, indices) = (topk_idx.view(), topk_idx.as_use());
        let tokens = self.native_update(ids, indices, Looked::At, layout_info, stream)?;
        Ok(Step::new(self, tokens))
    }

    /// Gives the handle its next routing and moves it into the step: one that can live in a struct.
    /// [`Step::into_handle`] gives the handle back.
    ///
    /// # Errors
    /// The errors of [`update`](Self::update), each with the handle.
    pub fn into_step(
        mut self,
        topk_idx: Tensor<'_>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'static, Self>, Refused<Self>> {
        let (ids, indices) = (topk_idx.view(), topk_idx.as_use());
        match self.native_update(ids, indices, Looked::At, layout_info, stream) {
            Ok(tokens) => Ok(Step::new(self, tokens)),
            Err(error) => Err(Refused::kept(error, self)),
        }
    }

    /// Gives the handle its next routing without a copy and without a look: the library reads the
    /// caller's ids, and the step borrows them until it ends. Low-latency kernels read them in
    /// dispatch and combine.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of updates is broken, of which none is about what the ids say;
    /// and the errors of [every call](crate#errors).
    ///
    /// # Safety
    /// Once the stream has come to this update, and until the last call of the step has run, the ids
    /// stay as they are and each is below the number of experts. In low-latency
    /// expert-major no id but negative ones stands twice in a row. In low latency no id is below
    /// `number of experts - 65536`. In the duplicating expert-major mode no token has more than eight
    /// experts of one rank (EP 4.8.1).
    pub unsafe fn update_trusted<'a>(
        &'a mut self,
        topk_idx: Tensor<'a>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'a>> {
        let indices = topk_idx.as_use();
        let looked_at = Looked::Trusted;
        let tokens =
            self.native_update(topk_idx.view(), indices, looked_at, layout_info, stream)?;
        Ok(Step::new(self, tokens).trusted(indices))
    }
}
