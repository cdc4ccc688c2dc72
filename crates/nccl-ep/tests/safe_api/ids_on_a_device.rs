//! Expert ids where memory is a device's: what is launched, and what works without a kernel. Stub tables.

use nccl_ep::{
    Buffer, Comm, DispatchConfig, DispatchInputs, DispatchOutputs, Error, Group, GroupConfig,
    Handle, HandleConfig, Layout, LayoutInfo, MemorySpace, OwnedStream, Stream, Tensor, TensorMut,
    TopK, Validation, bf16,
};
use nccl_ext_core::driver::DriverApi;
use nccl_ext_cpu::{CpuConfig, run_ranks};
use nccl_ext_test::stub::{self, ep};

fn config() -> GroupConfig {
    GroupConfig::new().num_experts(8).max_dispatch_tokens_per_rank(300).max_token_bytes(1024)
}

fn setup(driver: DriverApi, config: &GroupConfig, layout: Layout) -> (Comm, Group, Handle) {
    let builder = ep::builder(MemorySpace::Device, |_| {}).driver(driver);
    // SAFETY: the stubs keep to the contracts, as far as they do anything.
    let comm = ep::comm_on(unsafe { builder.build() }, 4);
    let group = Group::create(&comm, config).unwrap();
    let handle = group.init_handle(layout, &HandleConfig::new(), TopK::N(2), None).unwrap();
    ep::take_calls();
    (comm, group, handle)
}

/// A thread a token, in blocks of 128; the argument that says what an id may be; a copy behind the
/// kernel's own words.
#[test]
fn an_update_launches_one_kernel_with_these_arguments() {
    let rows = [
        (config(), Layout::ExpertMajor, 2),
        (config(), Layout::RankMajor, 0),
        (
            config().algorithm(nccl_ep::Algorithm::HighThroughput).max_recv_tokens_per_rank(4096),
            Layout::Flat,
            1,
        ),
    ];
    for (config, layout, repeated) in rows {
        let (comm, _group, mut handle) = setup(stub::DRIVER, &config, layout);
        assert!(stub::take_launch().is_none());
        let stream = OwnedStream::new(&comm).unwrap();
        let ids: Vec<i32> = (0..600).map(|id| id % 8).collect();
        let ids = Buffer::from_slice(&comm, &ids).unwrap();
        let mut places = vec![];
        for (tokens, blocks) in [(1, 1), (128, 1), (129, 2), (300, 3)] {
            let ids = Tensor::new(&ids, &[tokens, 2]).unwrap();
            handle.update(ids, None, stream.stream()).map(drop).unwrap();
            let launch = stub::take_launch().unwrap();
            let check = launch.check;
            assert_eq!((launch.grid, launch.clean), ([blocks, 128], true), "{tokens}");
            assert_eq!(launch.stream, stream.stream().as_raw());
            assert_eq!((check.tokens, check.topk, check.wide), (tokens as u64, 2, 0));
            assert_eq!((check.experts, check.repeated, check.rank_experts), (8, repeated, 0));
            assert_eq!(check.to.addr() - check.state.addr(), 256);
            places.push((check.from, check.to, check.report));
        }
        assert!(places.windows(2).all(|pair| pair[0] == pair[1]), "{places:?}");
        assert_ne!(places[0].0, places[0].1.cast_const());
        // Nothing to copy, nothing to launch.
        handle
            .update(Tensor::new(&ids, &[0, 2]).unwrap(), None, stream.stream())
            .map(drop)
            .unwrap();
        assert!(stub::take_launch().is_none());
        assert_eq!(ep::take_calls(), ["ncclEpUpdateHandle"; 5]);
    }
}

#[test]
fn a_driver_without_kernels_is_named_with_what_else_works() {
    let without = DriverApi { launch_kernel: None, ..stub::DRIVER };
    let (comm, _group, mut handle) = setup(without, &config(), Layout::ExpertMajor);
    let buffer = Buffer::from_slice(&comm, &[3_i64, -9, 0, 1]).unwrap();
    let ids = Tensor::new(&buffer, &[2, 2]).unwrap();
    let refused = handle.update(ids, None, Stream::DEFAULT).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        "looking at expert ids on the device is not offered by the driver of backend stub (no \
         cuLaunchKernel); it needs a driver that exports it; without it use Validation::Data, which \
         looks on the host, or Handle::update_trusted, which does not look"
    );
    assert_eq!(ep::take_calls(), [""; 0]);
    // SAFETY: the stub reads no ids.
    unsafe { handle.update_trusted(ids, None, Stream::DEFAULT) }.map(drop).unwrap();
    assert_eq!(ep::take_calls(), ["ncclEpUpdateHandle"]);

    let data = config().validation(Validation::Data);
    let driver = DriverApi { pointer_attribute: Some(of_the_device), ..without };
    let (comm, _group, mut handle) = setup(driver, &data, Layout::ExpertMajor);
    let buffer = Buffer::from_slice(&comm, &[3_i64, -9, 0, 1]).unwrap();
    let ids = Tensor::new(&buffer, &[2, 2]).unwrap();
    handle.update(ids, None, Stream::DEFAULT).map(drop).unwrap();
    assert_eq!(ep::take_calls(), ["ncclEpUpdateHandle"]);
}

/// Every pointer is device memory.
unsafe extern "C" fn of_the_device(
    value: *mut core::ffi::c_void,
    _: core::ffi::c_int,
    _: u64,
) -> nccl_ext_core::driver::CuResult {
    // SAFETY: the contract of cuPointerGetAttribute for the kind of memory.
    unsafe { value.cast::<u32>().write(nccl_ext_core::driver::MEMORY_DEVICE) };
    nccl_ext_core::driver::CuResult::SUCCESS
}

/// Case A6 where a call returns before its work is done: the ids are gone by then, and the copy is what
/// the library reads. The step waits and tells.
#[test]
fn ids_are_freed_before_the_work_that_reads_them_is_done() {
    for seed in [0, 7] {
        let config = CpuConfig::new().deferred(seed);
        let ended = run_ranks(2, &config, |comm| {
            let group = Group::create(&comm, &self::config().max_dispatch_tokens_per_rank(4))?;
            let options = HandleConfig::new();
            let mut handle = group.init_handle(Layout::ExpertMajor, &options, TopK::N(2), None)?;
            let own = OwnedStream::new(&comm)?;
            let stream = own.stream();
            let tokens = Buffer::<bf16>::zeroed(&comm, 2 * 512)?;
            let mut received = Buffer::<bf16>::zeroed(&comm, 4 * 8 * 512)?;
            let mut counters = Buffer::<i32>::zeroed(&comm, 4)?;

            let ids = Buffer::from_slice(&comm, &[3_i64, 8, 5, 5])?;
            let mut step = handle.update(Tensor::new(&ids, &[2, 2])?, None, stream)?;
            drop(ids);
            let told = step.check(stream);
            assert!(matches!(told, Err(Error::Ids { count: 2, token: 0, choice: 1 })), "{told:?}");
            let inputs = DispatchInputs::new(Tensor::new(&tokens, &[2, 512])?);
            let rows = TensorMut::new(&mut received, &[4, 8, 512])?;
            let mut outputs = DispatchOutputs::new(rows);
            let mut info = LayoutInfo::new().expert_counters(TensorMut::new(&mut counters, &[4])?);
            let plain = DispatchConfig::new();
            step.dispatch(&inputs, &mut outputs, Some(&mut info), &plain, stream)?;
            drop(step);
            let counted = counters.to_vec(stream)?;
            handle.destroy()?;
            group.destroy()?;
            comm.destroy()?;
            Ok::<_, Error>(counted)
        });
        let counted: Vec<_> = ended.into_iter().map(Result::unwrap).collect();
        assert_eq!(counted, [[0, 0, 0, 2], [0, 2, 0, 0]], "seed {seed}");
    }
}
