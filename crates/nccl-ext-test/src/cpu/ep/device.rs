//! High-throughput ranks of the deferred backend whose tensors are device memory, and whose calls
//! wait for nothing.

use std::ptr::{null, null_mut};
use std::rc::Rc;

use nccl_ep_sys::{
    ImportApi, VersionedStruct, ncclEpCombineInputs_t, ncclEpCombineOutputs_t,
    ncclEpDispatchInputs_t, ncclEpDispatchOutputs_t, ncclEpGroupConfig_t, ncclEpHandleConfig_t,
    ncclEpLayout_t, ncclEpLayoutInfo_t, ncclEpTensor_t,
};
use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Buffer, Comm, DataType, DeviceBuffer, Element, Result, Stream, bf16};
use nccl_ext_cpu::{backend, deferred_backend};

use super::super::{SUCCESS, take_error};
use super::import::handle_memory_size;
use super::{
    CANARY, FLAT, Fixture, HIGH_THROUGHPUT, HT_HIDDEN, TestGroup, TestHandle, api, assert_ok,
    uniform_rows,
};

/// A tensor in memory of a rank's device.
#[derive(Debug)]
pub struct DeviceTensor<T: Element> {
    pub buffer: Buffer<T>,
    sizes: Vec<usize>,
    raw: ncclEpTensor_t,
}

impl<T: Element> DeviceTensor<T> {
    /// # Panics
    /// If there is no memory.
    #[track_caller]
    pub fn new(comm: &Comm, sizes: &[usize], data: &[T]) -> Self {
        let mut raw: ncclEpTensor_t = VersionedStruct::init();
        (raw.ndim, raw.datatype) = (sizes.len() as u32, T::DATA_TYPE.as_raw());
        Self { buffer: Buffer::from_slice(comm, data).unwrap(), sizes: sizes.to_vec(), raw }
    }

    #[track_caller]
    pub fn filled(comm: &Comm, sizes: &[usize], value: T) -> Self {
        Self::new(comm, sizes, &vec![value; sizes.iter().product()])
    }

    /// The descriptor, good until the tensor is used otherwise.
    pub fn descriptor(&mut self) -> *mut ncclEpTensor_t {
        self.raw.sizes = self.sizes.as_mut_ptr();
        self.raw.data = self.buffer.raw().ptr;
        &raw mut self.raw
    }
}

/// A rank with a group, a handle in memory of its own, and the tensors of a step.
#[derive(Debug)]
pub struct DeviceRank {
    // Handles go before their group and their memory.
    pub handle: TestHandle,
    pub group: Rc<TestGroup>,
    pub memory: DeviceTensor<u8>,
    pub ids: DeviceTensor<i64>,
    pub total: DeviceTensor<i64>,
    pub tokens: DeviceTensor<bf16>,
    pub weights: DeviceTensor<f32>,
    pub out_tokens: DeviceTensor<bf16>,
    pub out_weights: DeviceTensor<f32>,
    /// FLAT only.
    pub out_ids: Option<DeviceTensor<i64>>,
    pub sums: DeviceTensor<bf16>,
}

impl DeviceRank {
    /// Group and handle, not updated; outputs have as many rows as the fixture's budget.
    #[track_caller]
    pub fn new(
        comm: &Comm,
        fixture: Fixture,
        layout: ncclEpLayout_t,
        change: impl Fn(&mut ncclEpGroupConfig_t),
    ) -> Self {
        let mut config = fixture.config(HIGH_THROUGHPUT, HT_HIDDEN);
        change(&mut config);
        Self::in_group(comm, Rc::new(TestGroup::new(comm, &config)), fixture, layout)
    }

    /// One more handle of a group, with tensors of its own.
    #[track_caller]
    pub fn in_group(
        comm: &Comm,
        group: Rc<TestGroup>,
        fixture: Fixture,
        layout: ncclEpLayout_t,
    ) -> Self {
        let (rank, k, rows) = (comm.rank(), fixture.topk, fixture.max_recv);
        let bytes = handle_memory_size(&group, layout, k);
        let mut memory = DeviceTensor::filled(comm, &[bytes], 0_u8);
        let handle = handle_in(&group, layout, k, &mut memory);
        let values = (fixture.values)(rank);
        let tokens = values.len();
        let flat = layout == FLAT;
        let out_weights = if flat { vec![rows, k] } else { vec![rows] };
        let canary = bf16::from_f32(CANARY);
        Self {
            handle,
            group,
            memory,
            ids: DeviceTensor::new(comm, &[tokens, k], &(fixture.ids)(rank)),
            total: DeviceTensor::filled(comm, &[1], -9),
            tokens: DeviceTensor::new(
                comm,
                &[tokens, HT_HIDDEN],
                &uniform_rows(&values, HT_HIDDEN),
            ),
            weights: DeviceTensor::new(comm, &[tokens, k], &fixture.weights(rank).data),
            out_tokens: DeviceTensor::filled(comm, &[rows, HT_HIDDEN], canary),
            out_weights: DeviceTensor::filled(comm, &out_weights, CANARY),
            out_ids: flat.then(|| DeviceTensor::filled(comm, &[rows, k], CANARY as i64)),
            sums: DeviceTensor::filled(comm, &[tokens, HT_HIDDEN], canary),
        }
    }

    /// # Errors
    /// The call's.
    pub fn update(&mut self, stream: Stream<'_>) -> Result<()> {
        let mut info = ncclEpLayoutInfo_t::init();
        info.recv_total_counter = self.total.descriptor();
        let (ids, stream) = (self.ids.descriptor(), stream.as_raw());
        // SAFETY: the handle is live, the descriptors are this rank's; the backend finds out when
        // their memory is used otherwise before the stream has passed the call.
        result(unsafe { (api().ncclEpUpdateHandle)(self.handle.raw, ids, &info, stream) })
    }

    /// # Errors
    /// The call's.
    pub fn dispatch(&mut self, stream: Stream<'_>) -> Result<()> {
        let mut inputs = ncclEpDispatchInputs_t::init();
        inputs.tokens = self.tokens.descriptor();
        inputs.topk_weights = self.weights.descriptor();
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = self.out_tokens.descriptor();
        outputs.topk_weights = self.out_weights.descriptor();
        outputs.topk_idx = self.out_ids.as_mut().map_or(null_mut(), DeviceTensor::descriptor);
        let (dispatch, stream) = (api().ncclEpDispatch, stream.as_raw());
        // SAFETY: as in `update`.
        result(unsafe { dispatch(self.handle.raw, &inputs, &outputs, null(), null(), stream) })
    }

    /// A handle in this one's memory, as the memory says that it was updated, or why not.
    ///
    /// # Errors
    /// The call's.
    pub fn import(&mut self) -> Result<TestHandle> {
        let (layout, topk, mut raw) = (self.handle.layout, self.handle.topk, null_mut());
        let [tokens, k] = self.ids.sizes[..] else { unreachable!("ids have two extents") };
        let (tokens, k, ids) = (tokens as u32, k as i32, DataType::Int64.as_raw());
        let import = backend().extension::<ImportApi>()?.ncclExtImportHandle;
        let (group, memory) = (self.group.raw, self.memory.descriptor());
        // SAFETY: the group is live, and the memory lives as long as this rank.
        result(unsafe { import(&mut raw, group, layout, null(), tokens, k, ids, memory) })?;
        Ok(TestHandle { raw, layout, topk })
    }

    /// Frees the handle's memory.
    ///
    /// # Errors
    /// The call's: then it was not freed.
    pub fn free_memory(&mut self) -> Result<()> {
        let memory = self.memory.buffer.raw().ptr;
        // SAFETY: it came from `ncclMemAlloc`. A second free, when the buffer is dropped, is refused.
        result(unsafe { (deferred_backend().nccl().ncclMemFree)(memory) })
    }

    /// From now on the rank knows of so many rows received.
    pub fn shorten_received(&mut self, rows: usize) {
        self.out_tokens.sizes[0] = rows;
    }

    /// Combines what was received.
    ///
    /// # Errors
    /// The call's.
    pub fn combine(&mut self, stream: Stream<'_>) -> Result<()> {
        let mut inputs = ncclEpCombineInputs_t::init();
        inputs.tokens = self.out_tokens.descriptor();
        let mut outputs = ncclEpCombineOutputs_t::init();
        outputs.tokens = self.sums.descriptor();
        let (combine, stream) = (api().ncclEpCombine, stream.as_raw());
        // SAFETY: as in `update`.
        result(unsafe { combine(self.handle.raw, &inputs, &outputs, null(), stream) })
    }
}

fn result(code: ncclResult_t) -> Result<()> {
    if code == SUCCESS { Ok(()) } else { Err(take_error().unwrap()) }
}

#[track_caller]
fn handle_in(
    group: &TestGroup,
    layout: ncclEpLayout_t,
    topk: usize,
    memory: &mut DeviceTensor<u8>,
) -> TestHandle {
    let config = ncclEpHandleConfig_t::init();
    let mut raw = null_mut();
    let (init, given) = (api().ncclEpInitHandle, memory.descriptor());
    // SAFETY: the group is live, and its owner keeps the memory as long as the handle.
    assert_ok(unsafe { init(&mut raw, group.raw, layout, &config, topk as i32, given) });
    TestHandle { raw, layout, topk }
}
