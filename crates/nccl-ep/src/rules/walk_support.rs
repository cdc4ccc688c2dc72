//! What the walks share: configurations, tensors, a group with a handle on stub tables.

use std::sync::Arc;

use nccl_ext_core::{Comm, DataType, Error, MemorySpace, Result, Stream};
use nccl_ext_test::stub::ep as stub;

use super::RuleInfo;
use crate::environment::Environment;
use crate::geometry::EmMode;
use crate::*;

pub(super) const RANKS: u32 = 4;
pub(super) const EXPERTS: u32 = 8;
pub(super) const TOKENS: usize = 3;
pub(super) const HIDDEN: usize = 512;
pub(super) const TOPK: u32 = 2;
pub(super) const STREAM: Stream<'static> = Stream::DEFAULT;

pub(super) fn ll() -> GroupConfig {
    GroupConfig::new().num_experts(EXPERTS).max_dispatch_tokens_per_rank(4).max_token_bytes(2048)
}

pub(super) fn ht() -> GroupConfig {
    ll().algorithm(Algorithm::HighThroughput).max_recv_tokens_per_rank(16)
}

/// The error names the row, and nothing native ran since the calls were last taken.
#[track_caller]
pub(super) fn assert_names(info: &RuleInfo, result: Result<()>) {
    match result {
        Err(Error::Invalid { name, argument, rule, scope, .. }) => {
            assert_eq!((name, rule), (info.name, info.rule));
            let one_of_several = ["group.agreement", "plan.bytes"].contains(&name);
            assert!(argument == info.argument || one_of_several, "{name}: {argument}");
            assert_eq!(scope, info.scope, "{}", info.name);
        }
        other => panic!("{}: {other:?}", info.name),
    }
    assert_eq!(stub::take_calls(), [""; 0], "{}", info.name);
}

/// No update, dispatch or combine ran. Drops after the error free the handle, which is local.
#[track_caller]
pub(super) fn assert_no_step_calls(info: &RuleInfo) {
    let calls = stub::take_calls();
    let native = ["ncclEpCreateHandle", "ncclEpUpdateHandle", "ncclEpDispatch", "ncclEpCombine"];
    assert!(!calls.iter().any(|call| native.contains(call)), "{}: {calls:?}", info.name);
}

/// A tensor over fresh memory that stays for the rest of the test process.
pub(super) fn leaked(
    data_type: DataType,
    shape: &[usize],
) -> (*mut core::ffi::c_void, DataType, Vec<usize>) {
    let bytes = shape.iter().product::<usize>() * data_type.size();
    let memory: &mut [u128] = Box::leak(vec![0; bytes / 16 + 1].into_boxed_slice());
    (memory.as_mut_ptr().cast(), data_type, shape.to_vec())
}

pub(super) fn read(data_type: DataType, shape: &[usize]) -> Tensor<'static> {
    read_in(MemorySpace::Host, data_type, shape)
}

pub(super) fn write(data_type: DataType, shape: &[usize]) -> TensorMut<'static> {
    write_in(MemorySpace::Host, data_type, shape)
}

fn read_in(memory: MemorySpace, data_type: DataType, shape: &[usize]) -> Tensor<'static> {
    let (ptr, data_type, shape) = leaked(data_type, shape);
    // SAFETY: fresh leaked memory of that size. The stub takes the host's for any.
    unsafe { Tensor::from_raw(ptr, data_type, &shape, memory) }.unwrap()
}

fn write_in(memory: MemorySpace, data_type: DataType, shape: &[usize]) -> TensorMut<'static> {
    let (ptr, data_type, shape) = leaked(data_type, shape);
    // SAFETY: as above, and nothing else knows the memory.
    unsafe { TensorMut::from_raw(ptr, data_type, &shape, memory) }.unwrap()
}

/// Indices that break nothing, of every token.
pub(super) fn ids() -> Tensor<'static> {
    ids_in(MemorySpace::Host)
}

fn ids_in(memory: MemorySpace) -> Tensor<'static> {
    let (ptr, data_type, shape) = leaked(DataType::Int64, &[TOKENS, TOPK as usize]);
    for at in 0..TOKENS * TOPK as usize {
        // SAFETY: fresh leaked memory of that size.
        unsafe { ptr.cast::<i64>().add(at).write(at as i64) };
    }
    // SAFETY: as in `read_in`.
    unsafe { Tensor::from_raw(ptr, data_type, &shape, memory) }.unwrap()
}

/// What the rules of calls start from: a handle after its update, and tensors that fit.
pub(super) struct StubGroup {
    /// Where its tensors live.
    memory: MemorySpace,
    pub(super) group: Group,
    pub(super) layout: Layout,
}

impl StubGroup {
    pub(super) fn new(ranks: usize, config: &GroupConfig, layout: Layout) -> Self {
        Self::on(&stub::comm(ranks), config, layout)
    }

    pub(super) fn on(comm: &Comm, config: &GroupConfig, layout: Layout) -> Self {
        let group = Group::create_in(comm, config, Environment::default(), None).unwrap();
        Self { memory: comm.backend().memory(), group, layout }
    }

    /// As [`new`](Self::new), with the expert-major mode that the environment would choose.
    pub(super) fn in_em_mode(
        ranks: usize,
        config: &GroupConfig,
        layout: Layout,
        mode: EmMode,
    ) -> Self {
        let mut calls = Self::new(ranks, config, layout);
        Arc::get_mut(&mut calls.group.shared).unwrap().geometry.em_mode = mode;
        calls
    }

    fn read(&self, data_type: DataType, shape: &[usize]) -> Tensor<'static> {
        read_in(self.memory, data_type, shape)
    }

    fn write(&self, data_type: DataType, shape: &[usize]) -> TensorMut<'static> {
        write_in(self.memory, data_type, shape)
    }

    /// The indices of an update that breaks nothing.
    pub(super) fn ids(&self) -> Tensor<'static> {
        ids_in(self.memory)
    }

    pub(super) fn handle(&self) -> Handle {
        let made = self.group.init_handle(self.layout, &HandleConfig::new(), TopK::N(TOPK), None);
        made.unwrap()
    }

    pub(super) fn dispatch(&self, hidden: usize, pass: PassDir, weight_rows: usize) -> Result<()> {
        let mut handle = self.handle();
        let ids = self.ids();
        let mut step = handle.update(ids, None, STREAM)?;
        let outputs = self.outputs(hidden, weight_rows);
        self.dispatch_in(&mut step, hidden, pass, outputs)
    }

    pub(super) fn outputs(&self, hidden: usize, weight_rows: usize) -> DispatchOutputs<'static> {
        let bf16 = DataType::Bfloat16;
        if self.layout == Layout::ExpertMajor {
            let local = self.group.local_experts();
            let rows = self.group.comm().size() * 4;
            return DispatchOutputs::new(self.write(bf16, &[local, rows, hidden]));
        }
        let eager = self.group.shared.geometry.eager;
        let rows = if eager { 0 } else { self.group.shared.geometry.max_recv as usize };
        DispatchOutputs::new(self.write(bf16, &[rows, hidden]))
            .topk_weights(self.write(DataType::Float32, &[weight_rows.max(rows), 2]))
            .topk_idx(self.write(DataType::Int64, &[rows, 2]))
    }

    pub(super) fn dispatch_in(
        &self,
        step: &mut Step<'_>,
        hidden: usize,
        pass: PassDir,
        mut outputs: DispatchOutputs<'_>,
    ) -> Result<()> {
        let mut inputs = DispatchInputs::new(self.read(DataType::Bfloat16, &[TOKENS, hidden]));
        let mut info = LayoutInfo::new();
        if self.layout == Layout::ExpertMajor {
            let local = self.group.local_experts();
            info.expert_counters = Some(self.write(DataType::Int32, &[local]));
        } else {
            inputs.topk_weights = Some(self.read(DataType::Float32, &[TOKENS, 2]));
        }
        let config = DispatchConfig::new().pass_direction(pass);
        stub::take_calls();
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, STREAM)
    }

    pub(super) fn combine(&self, hidden: usize, pass: PassDir) -> Result<()> {
        let mut handle = self.handle();
        let mut step = handle.update(self.ids(), None, STREAM)?;
        self.dispatch_in(&mut step, HIDDEN, PassDir::Fwd, self.outputs(HIDDEN, 0))?;
        self.combine_in(&mut step, hidden, pass)
    }

    pub(super) fn combine_in(
        &self,
        step: &mut Step<'_>,
        hidden: usize,
        pass: PassDir,
    ) -> Result<()> {
        let bf16 = DataType::Bfloat16;
        let mut inputs = if self.layout == Layout::ExpertMajor {
            let (local, rows) = (self.group.local_experts(), self.group.comm().size() * 4);
            CombineInputs::new(self.read(bf16, &[local, rows, hidden]))
        } else {
            CombineInputs::new(self.read(bf16, &[16, hidden]))
        };
        if self.layout == Layout::ExpertMajor {
            inputs.routing_weights = Some(self.read(DataType::Float32, &[TOKENS, 2]));
        }
        let mut outputs = CombineOutputs::new(self.write(bf16, &[TOKENS, hidden]));
        stub::take_calls();
        step.combine(&inputs, &mut outputs, &CombineConfig::new().pass_direction(pass), STREAM)
    }
}
