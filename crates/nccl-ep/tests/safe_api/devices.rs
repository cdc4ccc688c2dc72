//! Two devices in one world: a rank's calls take what is on its own device only (case A1).

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use nccl_ep::{
    Buffer, CombineConfig, CombineInputs, CombineOutputs, Comm, Device, DispatchConfig,
    DispatchInputs, DispatchOutputs, Error, Group, GroupConfig, HandleConfig, HandleSnapshot,
    Layout, LayoutInfo, OwnedStream, Result, Stream, Tensor, TensorMut, TopK, bf16,
};
use nccl_ext_cpu::run_ranks;

use crate::support::*;

const MEMORY: &str = "expected host memory of device 1 of backend cpu, found host memory of \
                      device 0 of backend cpu";
const STREAMS: &str =
    "expected a stream of device 1 of backend cpu, found one of device 0 of backend cpu";

/// Runs `call` on two ranks of two devices with a group. Rank 1 must be refused; what becomes of
/// rank 0 depends on whether the call is a collective. Gives rank 1's error.
#[track_caller]
fn refusal(config: &GroupConfig, call: impl Fn(&Group, Device) -> Result<()> + Sync) -> String {
    let outcomes = run_ranks(2, &nccl_ext_test::worlds::config().devices(2), |comm: Comm| {
        let group = Group::create(&comm, config)?;
        let other = Device::new(comm.backend(), 0);
        let done = call(&group, other);
        comm.fail(&Error::RankGone { reason: "the test is over".into() });
        done
    });
    error_of(&outcomes[1]).to_string()
}

/// A low-latency round of one value per row; each part may be on another device.
struct Round<'a> {
    ids: Device,
    tokens: Device,
    rows: Device,
    dispatch: Stream<'a>,
    combine: Stream<'a>,
}

impl<'a> Round<'a> {
    fn at_home(comm: &Comm) -> Self {
        let home = comm.device();
        Self { ids: home, tokens: home, rows: home, dispatch: STREAM, combine: STREAM }
    }

    fn run(&self, group: &Group) -> Result<()> {
        const HIDDEN: usize = 512;
        let mut handle = top2(group, Layout::ExpertMajor)?;
        let (local, slots) = (group.local_experts(), group.comm().size() * 4);
        let ids = Buffer::from_slice(self.ids, &[0_i64, 1])?;
        let tokens = Buffer::<bf16>::zeroed(self.tokens, HIDDEN)?;
        let mut rows = Buffer::<bf16>::zeroed(self.rows, local * slots * HIDDEN)?;
        let mut counters = vec![0_i32; local];
        let mut step = handle.update(Tensor::new(&ids, &[1, 2])?, None, STREAM)?;
        let inputs = DispatchInputs::new(Tensor::new(&tokens, &[1, HIDDEN])?);
        let shape = [local, slots, HIDDEN];
        let mut outputs = DispatchOutputs::new(TensorMut::new(&mut rows, &shape)?);
        let mut info = LayoutInfo::new().expert_counters(TensorMut::new(&mut counters, &[local])?);
        let config = DispatchConfig::new();
        step.dispatch(&inputs, &mut outputs, Some(&mut info), &config, self.dispatch)?;
        let mut combined = vec![bf16::ZERO; HIDDEN];
        let weights = [0.5_f32; 2];
        let inputs = CombineInputs::new(Tensor::new(&rows, &shape)?)
            .routing_weights(Tensor::new(&weights, &[1, 2])?);
        let mut outputs = CombineOutputs::new(TensorMut::new(&mut combined, &[1, HIDDEN])?);
        step.combine(&inputs, &mut outputs, &CombineConfig::new(), self.combine)
    }
}

#[test]
fn every_tensor_of_a_round_is_on_the_ranks_device() {
    let on = |place: fn(&mut Round<'_>, Device)| {
        let text = refusal(&low_latency(), |group, other| {
            let mut round = Round::at_home(group.comm());
            if group.comm().rank() == 1 {
                place(&mut round, other);
            }
            round.run(group)
        });
        assert!(text.contains(MEMORY), "{text}");
        text
    };
    assert!(on(|round, other| round.ids = other).starts_with("`topk_idx`"));
    assert!(on(|round, other| round.tokens = other).starts_with("`inputs.tokens`"));
    assert!(on(|round, other| round.rows = other).starts_with("`outputs.tokens`"));
}

#[test]
fn every_stream_of_a_round_is_on_the_ranks_device() {
    for dispatch in [true, false] {
        let text = refusal(&low_latency(), |group, other| {
            let stream = OwnedStream::new(other)?;
            let mut round = Round::at_home(group.comm());
            if group.comm().rank() == 1 {
                *(if dispatch { &mut round.dispatch } else { &mut round.combine }) =
                    stream.stream();
            }
            round.run(group)
        });
        assert!(text.contains(STREAMS), "{text}");
    }
}

#[test]
fn streams_and_buffers_of_mask_calls_too() {
    let masked = low_latency().enable_mask(true);
    let text = refusal(&masked, |group, other| {
        let _handle = top2(group, Layout::ExpertMajor)?;
        if group.comm().rank() == 0 {
            return Ok(());
        }
        let stream = OwnedStream::new(other)?;
        let update = group.mask_update(&[true; 2], stream.stream()).unwrap_err().to_string();
        assert!(update.contains(STREAMS), "{update}");
        let query = group.mask_query(&mut [0_i32; 2], stream.stream()).unwrap_err().to_string();
        assert!(query.contains(STREAMS), "{query}");
        group.mask_query(&mut Buffer::<i32>::zeroed(other, 2)?, STREAM)
    });
    assert!(text.contains(MEMORY), "{text}");
}

#[test]
fn handle_memory_is_on_the_ranks_device() {
    let text = refusal(&high_throughput(), |group, other| {
        let config = HandleConfig::new();
        let bytes = group.handle_mem_size(Layout::Flat, &config, TopK::N(2))?;
        let device = if group.comm().rank() == 1 { other } else { group.comm().device() };
        let memory = Buffer::<u8>::zeroed(device, bytes)?;
        let made = group.init_handle(Layout::Flat, &config, TopK::N(2), Some(Box::new(memory)));
        made.map(drop)
    });
    assert!(text.starts_with("`handle_mem`") && text.contains(MEMORY), "{text}");
}

/// Rank 0 lends rank 1 a snapshot, whose memory is on rank 0's device, and stays until it was tried.
#[track_caller]
fn refused_elsewhere(restore: impl Fn(HandleSnapshot, &Group, Tensor<'_>) -> Result<()> + Sync) {
    const LONG: Duration = Duration::from_secs(60);
    let (lend, lent) = channel();
    let (tell, tried) = channel();
    let (lent, tried) = (Mutex::new(lent), Mutex::new(tried));
    let text = refusal(&high_throughput(), |group, _| {
        let config = HandleConfig::new();
        let bytes = group.handle_mem_size(Layout::Flat, &config, TopK::N(2))?;
        let memory = Box::new(Buffer::<u8>::zeroed(group.comm(), bytes)?);
        let mut handle = group.init_handle(Layout::Flat, &config, TopK::N(2), Some(memory))?;
        let ids = G2::IDS[group.comm().rank()];
        let ids = Tensor::new(&ids, &[4, 2])?;
        handle.update(ids, None, STREAM)?;
        let own = handle.snapshot(STREAM)?;
        if group.comm().rank() == 0 {
            lend.send(own).unwrap();
            tried.lock().unwrap().recv_timeout(LONG).unwrap();
            return Ok(());
        }
        let foreign = lent.lock().unwrap().recv_timeout(LONG).unwrap();
        let refused = restore(foreign, group, ids);
        tell.send(()).unwrap();
        refused
    });
    assert!(text.starts_with("`handle_mem`") && text.contains(MEMORY), "{text}");
}

#[test]
fn a_snapshot_is_restored_on_its_own_device_only() {
    refused_elsewhere(|snapshot, group, _| snapshot.restore(group).map(drop));
}

#[test]
fn a_snapshot_is_prepared_again_on_its_own_device_only() {
    refused_elsewhere(|snapshot, group, ids| {
        snapshot.restore_collective(group, ids, None, STREAM).map(drop)
    });
}
