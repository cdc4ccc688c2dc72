//! Giving a handle the routing of a step.

use std::sync::Arc;

use nccl_ext_core::{DeviceBuffer, Refused, Result, Stream};

use super::{Indices, Step};
#[cfg(doc)]
use crate::Error;
use crate::args::LayoutInfo;
use crate::handle::Handle;
use crate::tensor::Tensor;

impl Handle {
    /// Gives the handle the routing of the next step: `topk_idx` is `[tokens, top-k]` of int32 or
    /// int64 global expert ids, negative for no expert.
    ///
    /// The step borrows handle and indices, which must stay as they are until its last combine.
    /// HT: every rank calls it, and `layout_info` may ask for counters. LL: local.
    ///
    /// Ids are checked only under [`Validation::Data`](crate::Validation::Data). Without it the
    /// caller must give valid ids: the library corrupts device memory for an id that is no
    /// expert's, and in low-latency expert-major for an id that stands twice in a row.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of updates is broken; and the errors of
    /// [every call](crate#errors).
    #[doc(alias = "ncclEpUpdateHandle")]
    pub fn update<'a>(
        &'a mut self,
        topk_idx: Tensor<'a>,
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'a>> {
        let indices = topk_idx.as_use();
        let tokens = self.native_update(topk_idx.view(), indices, layout_info, stream)?;
        Ok(Step::new(self, tokens, Indices::borrowed(indices)))
    }

    /// Gives the handle its next routing and moves it into the step, with a share of the indices:
    /// a step that can live in a struct. [`Step::into_handle`] gives the handle back.
    ///
    /// # Errors
    /// The errors of [`update`](Self::update), each with the handle.
    pub fn update_shared<B>(
        mut self,
        topk_idx: Arc<B>,
        shape: [usize; 2],
        layout_info: Option<&mut LayoutInfo<'_>>,
        stream: Stream<'_>,
    ) -> Result<Step<'static, Self>, Refused<Self>>
    where
        B: DeviceBuffer + Send + Sync + 'static,
    {
        let tokens = Tensor::new(&*topk_idx, &shape)
            .and_then(|ids| self.native_update(ids.view(), ids.as_use(), layout_info, stream));
        match tokens {
            Ok(tokens) => Ok(Step::new(self, tokens, Indices::shared(topk_idx))),
            Err(error) => Err(Refused::kept(error, self)),
        }
    }
}
