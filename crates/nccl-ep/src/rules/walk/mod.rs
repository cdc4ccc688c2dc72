//! Walks the validation table: every row has a call that breaks it, the error names the row, and
//! no native call was made. A row without such a call fails the walk.

use std::sync::Arc;

use nccl_ext_core::{Comm, DataType, Error, MemorySpace, Result, Stream};

use super::group::Environment;
use super::tensors::{Call, Dim, Extent, Need, Sizes, Slot, TABLE, TensorRule};
use super::{RuleInfo, call, data, group, handle, import, mask};
use crate::geometry::EmMode;
use crate::{DispatchQuantizationRecipe as Recipe, *};
use nccl_ext_test::stub::ep as stub;

mod calls;
mod tensors;

use self::calls::Calls;

const RANKS: u32 = 4;
const EXPERTS: u32 = 8;
const TOKENS: usize = 3;
const HIDDEN: usize = 512;
const TOPK: u32 = 2;
const STREAM: Stream<'static> = Stream::DEFAULT;

fn ll() -> GroupConfig {
    GroupConfig::new().num_experts(EXPERTS).max_dispatch_tokens_per_rank(4).max_token_bytes(2048)
}

fn ht() -> GroupConfig {
    ll().algorithm(Algorithm::HighThroughput).max_recv_tokens_per_rank(16)
}

/// The error names the row, and nothing native ran.
fn assert_names(info: &RuleInfo, result: Result<()>) {
    match result {
        Err(Error::Invalid { name, argument, rule, scope, .. }) => {
            assert_eq!((name, argument, rule), (info.name, info.argument, info.rule));
            assert_eq!(scope, info.scope, "{}", info.name);
        }
        other => panic!("{}: {other:?}", info.name),
    }
    assert_eq!(stub::take_calls(), [""; 0], "{}", info.name);
}

/// No update, dispatch or combine ran. Drops after the error free the handle, which is local.
fn assert_no_step_calls(info: &RuleInfo) {
    let calls = stub::take_calls();
    let native = ["ncclEpUpdateHandle", "ncclEpDispatch", "ncclEpCombine"];
    assert!(!calls.iter().any(|call| native.contains(call)), "{}: {calls:?}", info.name);
}

#[test]
fn every_group_rule() {
    let flags = Environment { local_dup: true, nvlink_dup: true, ..Environment::default() };
    let usual = Environment::default();
    for rule in group::RULES {
        let (ranks, config, environment) = match rule.info.name {
            "group.experts-exist" => (4, ht().num_experts(0), usual),
            "group.ll-experts" => (4, ll().num_experts(65536), usual),
            "group.experts-divide" => (3, ll().num_experts(256), usual),
            "group.tokens-exist" => (4, ll().max_dispatch_tokens_per_rank(0), usual),
            "group.token-bytes-exist" => (4, ll().max_token_bytes(0), usual),
            "group.ht-token-bytes" => (4, ht().max_token_bytes(24), usual),
            "group.ht-experts-team" => (2, ht().num_experts(2), usual),
            "group.ht-budget" => (4, ht().max_recv_tokens_per_rank(3), usual),
            "group.topk" => (4, ll().num_topk(9), usual),
            "group.eager-drop" => {
                let config = ht().max_recv_tokens_per_rank(0);
                (4, config.overflow_policy(OverflowPolicy::Drop), usual)
            }
            "group.eager-bound" => {
                let config = ht().max_recv_tokens_per_rank(0).num_topk(8);
                (4, config.max_dispatch_tokens_per_rank(1 << 27), usual)
            }
            "group.sms" => (4, ll().max_num_sms(133), usual),
            "group.ht-sms" => (4, ht().max_num_sms(17), usual),
            "group.ll-sms" => (4, ll().max_num_sms(1), usual),
            "group.ht-mask" => (4, ht().enable_mask(true), usual),
            "group.em-flags" => (4, ht(), flags),
            "group.zero-copy" => (4, ll().zero_copy(ZeroCopyMode::On), usual),
            name => panic!("no violating call for {name}"),
        };
        let comm = stub::comm(ranks);
        let made = Group::create_in(&comm, &config, environment, None);
        assert_names(&rule.info, made.map(drop));
    }
}

/// EP 7.1: two ranks were seen to work up to 34 SMs, any number up to 16; the environment counts.
#[test]
fn ht_sms_known_to_work() {
    let attempt = |ranks, sms, comm_sms| {
        let environment = Environment { comm_sms, ..Environment::default() };
        let made = Group::create_in(&stub::comm(ranks), &ht().max_num_sms(sms), environment, None);
        made.map(|group| group.destroy().map_err(Error::from).unwrap()).is_ok()
    };
    assert!(attempt(4, 16, None) && attempt(2, 34, None) && attempt(4, 0, None));
    assert!(!attempt(4, 17, None) && !attempt(2, 35, None) && !attempt(2, 64, None));
    assert!(!attempt(4, 16, Some(32)) && attempt(4, 32, Some(16)));
    stub::take_calls();
}

#[test]
fn every_handle_rule() {
    for info in handle::REQUEST
        .iter()
        .map(|rule| rule.info)
        .chain(handle::RULES.iter().map(|rule| rule.info))
    {
        let plain = HandleConfig::new();
        let aligned = HandleConfig::new().dispatch_output_per_expert_alignment(4);
        let (em, flat) = (Layout::ExpertMajor, Layout::Flat);
        let dup = Some(EmMode::NvlinkDup);
        let (config, ranks, mode, layout, options, topk) = match info.name {
            "handle.automatic-topk" => (ll(), 4, None, em, plain, TopK::Auto),
            "handle.layout" => (ll(), 4, None, flat, plain, TopK::N(2)),
            "handle.alignment" => {
                let odd = HandleConfig::new().dispatch_output_per_expert_alignment(3);
                (ht(), 4, None, em, odd, TopK::N(2))
            }
            "handle.topk" => (ht(), 4, None, flat, plain, TopK::N(9)),
            "handle.ll-topk" => (ll().num_experts(64), 4, None, em, plain, TopK::N(32)),
            "handle.ht-topk" => (ht().num_topk(2), 4, None, flat, plain, TopK::N(3)),
            "handle.eager-topk" => {
                (ht().max_recv_tokens_per_rank(0), 4, None, em, plain, TopK::N(2))
            }
            "handle.em-topk" => (ht().num_experts(64), 4, None, em, plain, TopK::N(33)),
            "handle.em-local-experts" => (ht().num_experts(1028), 4, None, em, plain, TopK::N(2)),
            "handle.alignment-room" => {
                let wide = HandleConfig::new().dispatch_output_per_expert_alignment(1 << 31);
                (ht(), 4, None, em, wide, TopK::N(2))
            }
            "handle.em-dup-crowd" => {
                let config = ht().num_experts(64).max_recv_tokens_per_rank(1024);
                (config, 4, Some(EmMode::LocalDup), em, plain, TopK::N(9))
            }
            "handle.em-dup-experts" => (ht().num_experts(24), 4, dup, em, plain, TopK::N(2)),
            "handle.em-dup-team" => (ht().num_experts(256), 256, dup, em, plain, TopK::N(2)),
            "handle.em-dup-budget" => (ht(), 4, dup, em, plain, TopK::N(2)),
            "handle.em-dup-drop" => {
                let config = ht().max_recv_tokens_per_rank(33);
                (config.overflow_policy(OverflowPolicy::Drop), 4, dup, em, aligned, TopK::N(2))
            }
            "handle.ll-buffer-units" => {
                let config = ll().num_experts(4).max_token_bytes(512);
                (config.max_dispatch_tokens_per_rank(1), 1, None, em, plain, TopK::N(1))
            }
            "handle.ll-buffer-size" => {
                let config = ll().num_experts(4).max_token_bytes(1024);
                (config.rdma_buffer_size(50175), 2, None, em, plain, TopK::N(2))
            }
            name => panic!("no violating call for {name}"),
        };
        let mut group = Group::create_in(&stub::comm(ranks), &config, Environment::default(), None);
        if let (Some(mode), Ok(group)) = (mode, &mut group) {
            Arc::get_mut(&mut group.inner).unwrap().geometry.em_mode = mode;
        }
        let group = group.unwrap();
        stub::take_calls();
        let made = group.init_handle(layout, &options, topk, None);
        assert_names(&info, made.map(drop));
        assert_names(&info, group.handle_mem_size(layout, &options, topk).map(drop));
    }
}

/// A tensor over fresh memory that stays for the rest of the test process.
fn leaked(data_type: DataType, shape: &[usize]) -> (*mut core::ffi::c_void, DataType, Vec<usize>) {
    let bytes = shape.iter().product::<usize>() * data_type.size();
    let memory: &mut [u128] = Box::leak(vec![0; bytes / 16 + 1].into_boxed_slice());
    (memory.as_mut_ptr().cast(), data_type, shape.to_vec())
}

fn read(data_type: DataType, shape: &[usize]) -> Tensor<'static> {
    let (ptr, data_type, shape) = leaked(data_type, shape);
    // SAFETY: fresh leaked memory of that size.
    unsafe { Tensor::from_raw(ptr, data_type, &shape, MemorySpace::Host) }.unwrap()
}

fn write(data_type: DataType, shape: &[usize]) -> TensorMut<'static> {
    let (ptr, data_type, shape) = leaked(data_type, shape);
    // SAFETY: fresh leaked memory of that size, which nothing else knows.
    unsafe { TensorMut::from_raw(ptr, data_type, &shape, MemorySpace::Host) }.unwrap()
}

#[test]
fn every_rule_of_data() {
    for rule in data::DATA {
        let wide = HandleConfig::new();
        let (config, layout, ids) = match rule.info.name {
            "data.expert-exists" => (ht(), Layout::Flat, [0_i64, 1, 2, 8]),
            "data.ll-negative" => (ll(), Layout::RankMajor, [0, -65529, 1, 2]),
            "data.ll-em-twice" => (ll(), Layout::ExpertMajor, [0, 1, 5, 5]),
            "data.em-crowded" => {
                let config = ht().num_experts(64).max_recv_tokens_per_rank(1024);
                let calls =
                    Calls::new(4, &config.validation(Validation::Data), Layout::ExpertMajor);
                let mut group = calls.group;
                Arc::get_mut(&mut group.inner).unwrap().geometry.em_mode = EmMode::LocalDup;
                let topk = TopK::N(9);
                let mut handle = group.init_handle(Layout::ExpertMajor, &wide, topk, None).unwrap();
                // Eight of one rank are fine, with others and repeats beside them.
                let ids = Tensor::new(&[0_i64, 1, 2, 3, 4, 5, 6, 7, 16], &[1, 9]).unwrap();
                handle.update(ids, None, STREAM).map(drop).unwrap();
                stub::take_calls();
                let ids = Tensor::new(&[0_i64, 1, 2, 3, 4, 5, 6, 7, 8], &[1, 9]).unwrap();
                assert_names(&rule.info, handle.update(ids, None, STREAM).map(drop));
                continue;
            }
            name => panic!("no violating call for {name}"),
        };
        let calls = Calls::new(4, &config.validation(Validation::Data), layout);
        let mut handle = calls.handle();
        stub::take_calls();
        let ids = Tensor::new(&ids, &[2, 2]).unwrap();
        assert_names(&rule.info, handle.update(ids, None, STREAM).map(drop));
    }
}

/// Without data validation the same ids reach the library, and right ids pass with it.
#[test]
fn data_is_looked_at_only_when_asked() {
    let calls = Calls::new(4, &ll(), Layout::ExpertMajor);
    let wrong = Tensor::new(&[99_i64, 99], &[1, 2]).unwrap();
    calls.handle().update(wrong, None, STREAM).map(drop).unwrap();
    let calls = Calls::new(4, &ll().validation(Validation::Data), Layout::ExpertMajor);
    let mut handle = calls.handle();
    let right = Tensor::new(&[7_i32, 0, -1, -1, 3, -65528], &[3, 2]).unwrap();
    handle.update(right, None, STREAM).map(drop).unwrap();
    let error = handle.update(wrong, None, STREAM).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("expected ids below 8, found 99 as choice 0 of token 0"), "{error}");
}

#[test]
fn every_rule_of_snapshots_and_imports() {
    let memory =
        |comm: &Comm| -> HandleMemory { Box::new(Buffer::<u8>::zeroed(comm, 8192).unwrap()) };
    let all = import::SNAPSHOT.iter().chain(import::IMPORT);
    for rule in all {
        let high = Calls::new(4, &ht(), Layout::Flat);
        let low = Calls::new(4, &ll(), Layout::ExpertMajor);
        let state = HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int32 };
        let import = |calls: &Calls, state: HandleState| {
            let memory = memory(calls.group.comm());
            stub::take_calls();
            calls.group.import_handle(calls.layout, &HandleConfig::new(), &state, memory).map(drop)
        };
        let result = match rule.info.name {
            "snapshot.high-throughput" => low.handle().snapshot(STREAM).map(drop),
            "snapshot.prepared" => high.handle().snapshot(STREAM).map(drop),
            "snapshot.memory" => {
                let mut handle = high.handle();
                handle.update(read(DataType::Int64, &[TOKENS, 2]), None, STREAM).unwrap();
                handle.snapshot(STREAM).map(drop)
            }
            "import.high-throughput" => import(&low, state),
            "import.tokens" => import(&high, HandleState { num_tokens: 5, ..state }),
            "import.data-type" => {
                let topk_idx_datatype = DataType::Float32;
                import(&high, HandleState { topk_idx_datatype, ..state })
            }
            name => panic!("no violating call for {name}"),
        };
        stub::take_calls();
        assert_names(&rule.info, result);
    }
}

/// A library that cannot import says so, and what to do instead.
#[test]
fn import_is_unsupported_without_its_table() {
    let calls = Calls::new(4, &ht(), Layout::Flat);
    let state = HandleState { num_tokens: 4, num_topk: 2, topk_idx_datatype: DataType::Int64 };
    let memory: HandleMemory = Box::new(Buffer::<u8>::zeroed(calls.group.comm(), 8192).unwrap());
    let made = calls.group.import_handle(Layout::Flat, &HandleConfig::new(), &state, memory);
    let error = made.map(drop).unwrap_err().to_string();
    assert!(error.contains("libnccl_ep.so.0 (0.2.0)"), "{error}");
    assert!(error.contains("restore_collective"), "{error}");
}

/// Case E10: a pointer that is not device memory is refused before the launch.
#[test]
fn e10_host_pointer_as_device_tensor() {
    let comm = stub::comm_on(stub::backend(MemorySpace::Device), 4);
    let config = ll().validation(Validation::Data);
    let group = Group::create_in(&comm, &config, Environment::default(), None).unwrap();
    let options = HandleConfig::new();
    let mut handle = group.init_handle(Layout::ExpertMajor, &options, TopK::N(2), None).unwrap();
    let ids = [0_i64, 1];
    // SAFETY: readable memory; that it is the host's is what must be found.
    let ids = unsafe {
        Tensor::from_raw(ids.as_ptr().cast(), DataType::Int64, &[1, 2], MemorySpace::Device)
    };
    stub::take_calls();
    let error = handle.update(ids.unwrap(), None, STREAM).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("`topk_idx`: a tensor of this backend is device memory"), "{error}");
    assert!(!stub::take_calls().contains(&"ncclEpUpdateHandle"));
}

#[test]
fn every_rule_of_masks() {
    for rule in mask::RULES {
        let calls = |config: GroupConfig, ranks| Calls::new(ranks, &config, Layout::ExpertMajor);
        let masked = ll().enable_mask(true);
        let group = match rule.info.name {
            "mask.enabled" => calls(ll(), 4),
            "mask.entries" | "mask.clean-handle" => calls(masked, 4),
            "mask.clean-ranks" => calls(masked.num_experts(514).rdma_buffer_size(1 << 30), 257),
            "mask.clean-units" => {
                let odd = masked.max_dispatch_tokens_per_rank(1).max_token_bytes(512);
                calls(odd.rdma_buffer_size(1 << 30).num_experts(4), 1)
            }
            name => panic!("no violating call for {name}"),
        }
        .group;
        stub::take_calls();
        match rule.info.name {
            "mask.enabled" => {
                let mut mask = [0_i32; 4];
                assert_names(&rule.info, group.mask_query(&mut mask, STREAM));
                assert_names(&rule.info, group.mask_update(&[true; 4], STREAM));
                assert_names(&rule.info, group.mask_clean(STREAM));
                assert_names(&rule.info, group.get_async_error().map(drop));
                assert_names(&rule.info, group.error_clear());
            }
            "mask.entries" => assert_names(&rule.info, group.mask_update(&[true; 3], STREAM)),
            _ => assert_names(&rule.info, group.mask_clean(STREAM)),
        }
    }
}
