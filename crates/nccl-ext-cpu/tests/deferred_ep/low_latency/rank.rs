//! A low-latency rank with its tensors on the device.

use std::ptr::{null, null_mut};
use std::rc::Rc;

use nccl_ep_sys::{
    VersionedStruct, ncclEpCombineConfig_t, ncclEpCombineInputs_t, ncclEpCombineOutputs_t,
    ncclEpDispatchConfig_t, ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t, ncclEpLayout_t,
    ncclEpLayoutInfo_t,
};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Result, Stream, bf16};
use nccl_ext_test::cpu::ep::*;

use crate::tensor::{DeviceTensor, or_null};

/// A handle of a group that may have others, and the tensors of its steps. What was dispatched is
/// combined as it came.
pub(crate) struct DeviceRank {
    // Handles go before their group.
    pub(crate) handle: TestHandle,
    pub(crate) group: Rc<TestGroup>,
    pub(crate) ids: DeviceTensor<i64>,
    pub(crate) tokens: DeviceTensor<bf16>,
    pub(crate) weights: DeviceTensor<f32>,
    pub(crate) rows: DeviceTensor<bf16>,
    /// Rank-major only.
    pub(crate) out_weights: Option<DeviceTensor<f32>>,
    /// Rank-major only.
    pub(crate) out_ids: Option<DeviceTensor<i32>>,
    pub(crate) counters: DeviceTensor<i32>,
    pub(crate) sums: DeviceTensor<bf16>,
    pub(crate) send_only: bool,
}

impl DeviceRank {
    pub(crate) fn new(comm: &Comm, fixture: Fixture, layout: ncclEpLayout_t) -> Self {
        let group = TestGroup::new(comm, &fixture.config(LOW_LATENCY, LL_HIDDEN));
        Self::on(group.into(), comm, fixture, layout)
    }

    pub(crate) fn on(
        group: Rc<TestGroup>,
        comm: &Comm,
        fixture: Fixture,
        layout: ncclEpLayout_t,
    ) -> Self {
        let (rank, em) = (comm.rank(), layout == EXPERT_MAJOR);
        let Fixture { ranks, max_tokens, topk, .. } = fixture;
        let local = fixture.local_experts();
        let values = (fixture.values)(rank);
        let tokens = values.len();
        let shape = match em {
            true => [local, ranks * max_tokens, LL_HIDDEN],
            false => [ranks, max_tokens, LL_HIDDEN],
        };
        let columns = [ranks, max_tokens, topk];
        let canary = bf16::from_f32(CANARY);
        let uniform = uniform_rows(&values, LL_HIDDEN);
        let mut this = Self {
            handle: group.handle(layout, topk, 0),
            group,
            ids: DeviceTensor::new(comm, &[tokens, topk], &(fixture.ids)(rank)),
            tokens: DeviceTensor::new(comm, &[tokens, LL_HIDDEN], &uniform),
            weights: DeviceTensor::new(comm, &[tokens, topk], &fixture.weights(rank).data),
            rows: DeviceTensor::filled(comm, &shape, canary),
            out_weights: (!em).then(|| DeviceTensor::filled(comm, &columns, CANARY)),
            out_ids: (!em).then(|| DeviceTensor::filled(comm, &columns, CANARY as i32)),
            counters: DeviceTensor::filled(comm, &[if em { local } else { ranks }], -9),
            sums: DeviceTensor::filled(comm, &[tokens, LL_HIDDEN], canary),
            send_only: false,
        };
        this.update();
        this
    }

    fn is_expert_major(&self) -> bool {
        self.out_ids.is_none()
    }

    pub(crate) fn update(&mut self) {
        let (update, ids) = (api().ncclEpUpdateHandle, self.ids.descriptor());
        // SAFETY: the handle is live, and the ids are this rank's.
        assert_ok(unsafe { update(self.handle.raw, ids, null(), null_mut()) });
    }

    pub(crate) fn dispatch(&mut self, stream: Stream<'_>) -> ncclResult_t {
        let em = self.is_expert_major();
        let mut inputs = ncclEpDispatchInputs_t::init();
        inputs.tokens = self.tokens.descriptor();
        if !em {
            inputs.topk_weights = self.weights.descriptor();
        }
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = self.rows.descriptor();
        outputs.topk_weights = or_null(&mut self.out_weights);
        outputs.topk_idx = or_null(&mut self.out_ids);
        let mut info = ncclEpLayoutInfo_t::init();
        let counters = if em { &mut info.expert_counters } else { &mut info.src_rank_counters };
        *counters = self.counters.descriptor();
        let mut config = ncclEpDispatchConfig_t::init();
        config.send_only = self.send_only.into();
        let (dispatch, handle) = (api().ncclEpDispatch, self.handle.raw);
        // SAFETY: the handle is live, the structs are this frame's, and the tensors' memory is this
        // rank's; the backend finds out who uses it without an order.
        unsafe { dispatch(handle, &inputs, &outputs, &info, &config, stream.as_raw()) }
    }

    pub(crate) fn combine(&mut self, stream: Stream<'_>) -> ncclResult_t {
        let em = self.is_expert_major();
        let mut inputs = ncclEpCombineInputs_t::init();
        inputs.tokens = self.rows.descriptor();
        let mut outputs = ncclEpCombineOutputs_t::init();
        outputs.tokens = self.sums.descriptor();
        if em {
            outputs.topk_weights = self.weights.descriptor();
        }
        let mut config = ncclEpCombineConfig_t::init();
        config.send_only = self.send_only.into();
        let (combine, handle) = (api().ncclEpCombine, self.handle.raw);
        // SAFETY: as for `dispatch`.
        unsafe { combine(handle, &inputs, &outputs, &config, stream.as_raw()) }
    }

    /// The values of the sums, read on the stream.
    pub(crate) fn sums(&self, stream: Stream<'_>) -> Result<Vec<f32>> {
        Ok(row_values(&self.sums.buffer.to_vec(stream)?, LL_HIDDEN))
    }

    /// Waits for the streams. What has failed is not taken down, since that fails as well.
    pub(crate) fn end(self, comm: &Comm, streams: &[Stream<'_>]) -> Result<()> {
        let ends: Vec<_> = streams.iter().map(|stream| stream.synchronize(comm)).collect();
        let end: Result<()> = ends.into_iter().collect();
        if end.is_err() {
            std::mem::forget(self);
        }
        end
    }
}
