//! EP 9.1: the C ABI and argument checks.

#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "raw calls on tensors of the same stack")]

mod common;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use nccl_ep_sys::*;
use nccl_ext_core::raw::{cudaError_t, ncclDataType_t, ncclResult_t};
use nccl_ext_core::{Comm, bf16};
use nccl_ext_cpu::FailureClass;

const BF16: ncclDataType_t = ncclDataType_t::ncclBfloat16;

fn alloc(config: *const ncclEpTensorAllocConfig_t) -> (ncclResult_t, *mut ncclEpTensor_t) {
    let (sizes, mut tensor) = ([2_usize, 3], null_mut());
    let call = api().ncclEpTensorAlloc;
    (unsafe { call(&mut tensor, 2, BF16, sizes.as_ptr(), config) }, tensor)
}

fn destroy(tensor: *mut ncclEpTensor_t) -> ncclResult_t {
    unsafe { (api().ncclEpTensorDestroy)(tensor) }
}

#[test]
fn a01_version_into_null() {
    refused(unsafe { (api().ncclEpGetVersion)(null_mut()) }, ARGUMENT, FailureClass::Return);
}

#[test]
fn a02_version_is_that_of_the_release() {
    let mut version = 0;
    ok(unsafe { (api().ncclEpGetVersion)(&mut version) });
    assert_eq!(version, 200);
}

#[test]
fn a03_tensor_alloc_with_a_config_of_7_bytes() {
    let config = ncclEpTensorAllocConfig_t { size: 7, ..VersionedStruct::init() };
    let (code, tensor) = alloc(&config);
    refused(code, ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
}

#[test]
fn a04_tensor_alloc_with_a_larger_config() {
    let config = [16, NCCL_EP_MAGIC, 0xDEAD_BEEF, 0xDEAD_BEEF];
    let (code, tensor) = alloc(config.as_ptr().cast());
    ok(code);
    let made = unsafe { &*tensor };
    assert_eq!((made.ndim, made.datatype), (2, BF16));
    assert_eq!(unsafe { [*made.sizes, *made.sizes.add(1)] }, [2, 3]);
    assert!(made.data.is_null() && made.win_hdl.is_null() && made.win_offset == 0);
    ok(destroy(tensor));
}

#[test]
fn a05_tensor_alloc_config_with_wrong_magic() {
    let magic = NCCL_EP_MAGIC ^ 1;
    let config = ncclEpTensorAllocConfig_t { magic, ..VersionedStruct::init() };
    let (code, tensor) = alloc(&config);
    refused(code, ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
}

#[test]
fn a06_tensor_alloc_without_extents() {
    let (call, sizes, mut tensor) = (api().ncclEpTensorAlloc, [1_usize], null_mut());
    let code = unsafe { call(&mut tensor, 0, BF16, sizes.as_ptr(), null()) };
    refused(code, ARGUMENT, FailureClass::Return);
    refused(unsafe { call(&mut tensor, 1, BF16, null(), null()) }, ARGUMENT, FailureClass::Return);
    assert!(tensor.is_null());
    let code = unsafe { call(null_mut(), 1, BF16, sizes.as_ptr(), null()) };
    refused(code, ARGUMENT, FailureClass::Return);
}

#[test]
fn a07_tensor_destroy_of_null() {
    ok(destroy(null_mut()));
}

#[test]
fn a08_tensor_destroy_of_a_static_descriptor() {
    let mut tensor = Ten::filled(&[2], 1_i32);
    refused(destroy(tensor.d()), ARGUMENT, FailureClass::Return);
    assert_eq!(tensor.data, [1, 1]);
}

#[test]
fn a08_tensor_destroy_of_a_descriptor_that_only_claims_to_be_allocated() {
    let mut tensor = Ten::filled(&[2], 1_i32);
    tensor.raw().magic = 0xBEEF_BEEF;
    refused(destroy(tensor.d()), ARGUMENT, FailureClass::Return);
}

#[test]
fn a08_tensor_destroy_twice() {
    let (code, tensor) = alloc(null());
    ok(code);
    ok(destroy(tensor));
    refused(destroy(tensor), ARGUMENT, FailureClass::Return);
}

#[test]
fn a09_allocated_descriptor_with_other_sizes() {
    let (code, tensor) = alloc(null());
    ok(code);
    let mut other = [4_usize, 1];
    let own = unsafe { std::mem::replace(&mut (*tensor).sizes, other.as_mut_ptr()) };
    refused(destroy(tensor), ARGUMENT, FailureClass::Return);
    let address = tensor.expose_provenance();
    ranks(1, |comm| {
        let ht = Ht::fresh(comm, ONE, FLAT, 0, |_| ());
        let update = api().ncclEpUpdateHandle;
        let code = unsafe {
            update(ht.handle.raw, std::ptr::with_exposed_provenance(address), null(), null_mut())
        };
        refused(code, ARGUMENT, FailureClass::Assert);
    });
    // Nothing happened to it: with its own sizes it is whole again.
    unsafe { (*tensor).sizes = own };
    ok(destroy(tensor));
}

#[test]
fn a09_allocated_descriptors_are_tensors() {
    ranks(1, |comm| {
        let ht = Ht::fresh(comm, ONE, FLAT, 0, |_| ());
        let (mut tensor, sizes) = (null_mut(), [4_usize, 1]);
        let int64 = ncclDataType_t::ncclInt64;
        let call = api().ncclEpTensorAlloc;
        ok(unsafe { call(&mut tensor, 2, int64, sizes.as_ptr(), null()) });
        let mut data = [0_i64, 1, 2, 3];
        unsafe { (*tensor).data = data.as_mut_ptr().cast() };
        ok(unsafe { (api().ncclEpUpdateHandle)(ht.handle.raw, tensor, null(), null_mut()) });
        // A copy is not the allocated one.
        let copy = unsafe { *tensor };
        let code = unsafe { (api().ncclEpUpdateHandle)(ht.handle.raw, &copy, null(), null_mut()) };
        refused(code, ARGUMENT, FailureClass::Assert);
        ok(destroy(tensor));
    });
}

/// One rank with the sizes of F4.
const ONE: Fixture = Fixture { ranks: 1, ..F4 };

fn create(comm: &Comm, config: &ncclEpGroupConfig_t) -> (ncclResult_t, ncclEpGroup_t) {
    let mut group = null_mut();
    (unsafe { (api().ncclEpCreateGroup)(&mut group, comm.as_raw(), config) }, group)
}

fn ht_config() -> ncclEpGroupConfig_t {
    ONE.config(HT, H)
}

#[test]
fn a10_create_handle_with_a_layout_info_of_39_bytes() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ht_config());
        let info = ncclEpLayoutInfo_t { size: 39, ..VersionedStruct::init() };
        let mut handle = null_mut();
        let call = api().ncclEpCreateHandle;
        let mut ids = ONE.ids(0);
        let code =
            unsafe { call(&mut handle, group.raw, FLAT, ids.d(), &info, null(), null_mut()) };
        refused(code, ARGUMENT, FailureClass::Return);
        assert!(handle.is_null());
    });
}

#[test]
fn a10_create_handle_is_init_and_update() {
    ranks(4, |comm| {
        let mut ht = Ht::fresh(comm, F4, FLAT, 0, |_| ());
        let (mut handle, mut ids) = (null_mut(), F4.ids(comm.rank()));
        let call = api().ncclEpCreateHandle;
        let group = ht.group.raw;
        ok(unsafe { call(&mut handle, group, FLAT, ids.d(), null(), null(), null_mut()) });
        ht.handle = Handle { raw: handle, layout: FLAT, topk: 1 };
        let rows = ht.dispatch().rows;
        assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
    });
}

#[test]
fn a11_token_bytes_that_are_no_multiple_of_16() {
    ranks(1, |comm| {
        let (code, group) =
            create(comm, &ncclEpGroupConfig_t { max_token_bytes: 24, ..ht_config() });
        refused(code, ARGUMENT, FailureClass::Return);
        assert!(group.is_null());
    });
}

/// Blocks that an allocator of the tests has given and not got back.
static LIVE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn give(ptr: *mut *mut c_void, bytes: usize, sizes: *mut c_void) -> cudaError_t {
    LIVE.fetch_add(1, Ordering::SeqCst);
    unsafe {
        (*sizes.cast::<Vec<usize>>()).push(bytes);
        *ptr = Box::into_raw(Box::new(bytes)).cast();
    }
    cudaError_t::cudaSuccess
}

unsafe extern "C" fn take(ptr: *mut c_void, _: *mut c_void) -> cudaError_t {
    LIVE.fetch_sub(1, Ordering::SeqCst);
    drop(unsafe { Box::from_raw(ptr.cast::<usize>()) });
    cudaError_t::cudaSuccess
}

#[test]
fn a12_one_allocation_function_without_the_other() {
    ranks(1, |comm| {
        let mut config = ht_config();
        config.alloc.alloc_fn = Some(give);
        let (code, group) = create(comm, &config);
        refused(code, USAGE, FailureClass::Return);
        assert!(!group.is_null());
        // What is left behind can be destroyed for high throughput, and used for nothing.
        let (mut size, call) = (0, api().ncclEpHandleMemSize);
        let code = unsafe { call(group, FLAT, null(), &mut size, 1) };
        refused(code, USAGE, FailureClass::UndefinedBehaviour);
        ok(unsafe { (api().ncclEpGroupDestroy)(group) });
    });
}

#[test]
fn a12_allocation_functions_are_called_in_pairs() {
    let all = ranks(1, |comm| {
        let mut sizes = Vec::<usize>::new();
        let mut config = ht_config();
        config.alloc.alloc_fn = Some(give);
        config.alloc.free_fn = Some(take);
        config.alloc.context = (&raw mut sizes).cast();
        let group = Group::new(comm, &config);
        let handle = group.handle(FLAT, 1, 0);
        assert_eq!(LIVE.load(Ordering::SeqCst), 4);
        drop((handle, group));
        assert_eq!(LIVE.load(Ordering::SeqCst), 0);
        sizes
    });
    // Workspace, counters, the routing bitmap (4 tokens of 8 bits), the handle's memory.
    assert_eq!(all[0][..3], [32 << 20, 32, 4]);
    assert_eq!(all[0].len(), 4);
}

#[test]
fn a13_more_sms_than_the_device_has() {
    ranks(1, |comm| {
        let (code, group) = create(comm, &ncclEpGroupConfig_t { max_num_sms: 133, ..ht_config() });
        refused(code, USAGE, FailureClass::Return);
        assert!(!group.is_null());
        ok(unsafe { (api().ncclEpGroupDestroy)(group) });
    });
}

#[test]
fn a13_half_built_low_latency_groups_cannot_be_destroyed() {
    ranks(1, |comm| {
        let config = ncclEpGroupConfig_t { max_num_sms: 133, ..ONE.config(LL, WIDE) };
        let (code, group) = create(comm, &config);
        refused(code, USAGE, FailureClass::Return);
        let code = unsafe { (api().ncclEpGroupDestroy)(group) };
        refused(code, USAGE, FailureClass::Throw);
    });
}

#[test]
fn a14_group_config_of_version_1() {
    ranks(1, |comm| {
        let config = ncclEpGroupConfig_t {
            size: 96,
            zero_copy: ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON,
            num_topk: 1,
            ..ht_config()
        };
        let group = Group::new(comm, &config);
        // A group with `num_topk` 1 would refuse 2, one with zero_copy ON would need windows.
        let ht = Ht {
            fixture: Fixture { topk: 2, ids: |_| vec![0, 1], values: |_| vec![3.0], ..ONE },
            rank: 0,
            handle: group.handle(FLAT, 2, 0),
            group,
            published: Published { counters: vec![], offsets: vec![], total: 0 },
        };
        ok(update_with(&ht.handle, &mut ids(2, &[0, 1]), null()));
        assert_eq!(ht.dispatch().rows[0], 3.0);
    });
}

fn ll_config(experts: u32) -> ncclEpGroupConfig_t {
    ncclEpGroupConfig_t { num_experts: experts, ..ONE.config(LL, WIDE) }
}

#[test]
fn a15_low_latency_topk_of_33() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ll_config(64));
        let (code, handle) = group.init(EM, 33, 0);
        refused(code, ARGUMENT, FailureClass::Return);
        assert!(!handle.is_null());
        // It counts as a handle of the group until it is destroyed.
        let code = unsafe { (api().ncclEpGroupDestroy)(group.raw) };
        refused(code, USAGE, FailureClass::UndefinedBehaviour);
        ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
    });
}

#[test]
fn a16_low_latency_topk_of_32_needs_33_warps() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ll_config(64));
        let (code, handle) = group.init(EM, 32, 0);
        refused(code, USAGE, FailureClass::Return);
        ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
        drop(group.handle(EM, 31, 0));
    });
}

#[test]
fn a16_warps_of_other_group_sizes() {
    ranks(1, |comm| {
        // 132 SMs: 264 experts are 2 a block, 396 are 3, 1848 are 14, 1849 too many.
        for (experts, most) in [(132, 31), (264, 31), (396, 29), (1452, 21), (1848, 27)] {
            let group = Group::new(comm, &ll_config(experts));
            drop(group.handle(EM, most, 0));
            let (code, handle) = group.init(EM, most as i32 + 1, 0);
            refused(code, USAGE, FailureClass::Return);
            ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
        }
        let (code, _leaked) = create(comm, &ll_config(1849));
        refused(code, USAGE, FailureClass::Return);
    });
}

#[test]
fn a17_high_throughput_topk_of_minus_1() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ht_config());
        let (code, handle) = group.init(FLAT, -1, 0);
        refused(code, USAGE, FailureClass::Return);
        ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
    });
}

#[test]
fn a18_high_throughput_topk_beyond_the_groups() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ncclEpGroupConfig_t { num_topk: 2, ..ht_config() });
        let (code, handle) = group.init(FLAT, 3, 0);
        refused(code, USAGE, FailureClass::Return);
        ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
        drop(group.handle(FLAT, 2, 0));
    });
}

#[test]
fn a19_eager_expert_major_needs_the_groups_topk() {
    ranks(1, |comm| {
        let config = ncclEpGroupConfig_t { max_recv_tokens_per_rank: 0, ..ht_config() };
        let group = Group::new(comm, &config);
        let (code, handle) = group.init(EM, 1, 0);
        refused(code, USAGE, FailureClass::Return);
        ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
        drop(group.handle(FLAT, 1, 0));
    });
}

#[test]
fn a20_low_latency_backward() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        let mut call = ll.dispatch_call(WIDE);
        let pass_direction = ncclEpPassDir_t::NCCL_EP_BWD_PASS;
        call.config = Some(ncclEpDispatchConfig_t { pass_direction, ..VersionedStruct::init() });
        refused(call.call(&ll.handle), USAGE, FailureClass::Return);
        let mut call = ll.combine_call(&[0.0; 16], WIDE);
        call.config = Some(ncclEpCombineConfig_t { pass_direction, ..VersionedStruct::init() });
        refused(call.call(&ll.handle), USAGE, FailureClass::Return);
    });
}

#[test]
fn a21_tokens_of_three_extents() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut call = ht.dispatch_into(16);
        call.tokens = Some(Ten::filled(&[4, 1, H], bf16::ZERO));
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
    });
}

fn complete(handle: &Handle) -> ncclResult_t {
    unsafe { (api().ncclEpComplete)(handle.raw, null(), null_mut()) }
}

#[test]
fn a22_complete_with_nothing_pending() {
    ranks(2, |comm| {
        ok(complete(&Ht::new(comm, G2, FLAT).handle));
        ok(complete(&Ll::new(comm, G2, EM).handle));
        let ht = Ht::new(comm, G2, FLAT);
        let config = ncclEpCompleteConfig_t { size: 7, ..VersionedStruct::init() };
        let code = unsafe { (api().ncclEpComplete)(ht.handle.raw, &config, null_mut()) };
        refused(code, ARGUMENT, FailureClass::Return);
    });
}

/// All mask functions, with NULL where they take a pointer.
fn mask_codes(group: ncclEpGroup_t) -> [(ncclResult_t, &'static str); 5] {
    let api = api();
    unsafe {
        [
            ((api.ncclEpMaskQuery)(group, null_mut(), null_mut()), "query"),
            ((api.ncclEpMaskUpdate)(group, null(), null_mut()), "update"),
            ((api.ncclEpMaskClean)(group, null_mut()), "clean"),
            ((api.ncclEpGetAsyncError)(group, null_mut()), "error"),
            ((api.ncclEpErrorClear)(group), "clear"),
        ]
    }
}

#[test]
fn a23_mask_functions_without_a_mask() {
    ranks(1, |comm| {
        for config in [ht_config(), ll_config(8)] {
            let group = Group::new(comm, &config);
            for (code, name) in mask_codes(group.raw) {
                assert_eq!(code, USAGE, "{name}");
            }
            assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Return));
        }
        for (code, name) in mask_codes(null_mut()) {
            assert_eq!(code, ARGUMENT, "{name}");
        }
        assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Throw));
        let group = Group::new(comm, &ncclEpGroupConfig_t { enable_mask: 1, ..ht_config() });
        for (code, name) in mask_codes(group.raw) {
            assert_eq!(code, USAGE, "{name}");
        }
        assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Throw));
    });
}

fn memory_size(group: &Group, layout: ncclEpLayout_t, topk: i32) -> (ncclResult_t, usize) {
    let mut size = 0;
    let call = api().ncclEpHandleMemSize;
    (unsafe { call(group.raw, layout, null(), &mut size, topk) }, size)
}

#[test]
fn a24_low_latency_handle_memory() {
    ranks(2, |comm| {
        let group = Group::new(comm, &G2.config(LL, WIDE));
        assert_eq!(memory_size(&group, EM, 2), (OK, 512));
        assert_eq!(memory_size(&group, RM, 2), (OK, 512));
    });
}

#[test]
fn a24_memory_size_arguments() {
    ranks(1, |comm| {
        for config in [ht_config(), ll_config(8)] {
            let group = Group::new(comm, &config);
            refused(memory_size(&group, FLAT, 0).0, ARGUMENT, FailureClass::Assert);
            let unset = ncclEpLayout_t::NCCL_EP_LAYOUT_UNSET;
            refused(memory_size(&group, unset, 1).0, ARGUMENT, FailureClass::Throw);
            // The layout is not compared with the algorithm.
            assert_eq!(memory_size(&group, ncclEpLayout_t(77), 1).0, OK);
            let call = api().ncclEpHandleMemSize;
            let code = unsafe { call(group.raw, FLAT, null(), null_mut(), 1) };
            refused(code, ARGUMENT, FailureClass::Assert);
            let code = unsafe { call(null_mut(), FLAT, null(), null_mut(), 1) };
            refused(code, ARGUMENT, FailureClass::Assert);
        }
    });
}

/// A25 and A26: the exact size is accepted, one byte less is not.
fn buffer_boundary(layout: ncclEpLayout_t, bytes: u64) {
    ranks(2, |comm| {
        for (bytes, fits) in [(bytes - 1, false), (bytes, true)] {
            let config = ncclEpGroupConfig_t { rdma_buffer_size: bytes, ..G2.config(LL, WIDE) };
            let group = Group::new(comm, &config);
            let (code, handle) = group.init(layout, 2, 0);
            if fits {
                ok(code);
            } else {
                refused(code, USAGE, FailureClass::Return);
            }
            ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
        }
    });
}

#[test]
fn a25_expert_major_buffer_size() {
    buffer_boundary(EM, 50176);
}

#[test]
fn a26_rank_major_buffer_size() {
    buffer_boundary(RM, 33536);
}

#[test]
fn a27_buffer_regions_are_multiples_of_16() {
    ranks(1, |comm| {
        let config = ncclEpGroupConfig_t {
            num_experts: 4,
            max_token_bytes: 512,
            max_dispatch_tokens_per_rank: 1,
            ..ll_config(4)
        };
        let group = Group::new(comm, &config);
        let (code, handle) = group.init(EM, 1, 0);
        refused(code, ARGUMENT, FailureClass::Throw);
        ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
    });
}

// Rules of EP 2.1 and 3.2 that have no vector of their own.

#[test]
fn group_creation_refuses_in_the_vendors_order() {
    use FailureClass::{Assert, Return, Throw};
    type Change = fn(&mut ncclEpGroupConfig_t);
    let rows: [(Change, ncclResult_t, FailureClass, bool); 11] = [
        (|c| c.size = 95, ARGUMENT, Return, false),
        (|c| c.magic = 0, ARGUMENT, Return, false),
        (|c| c.algorithm = ncclEpAlgorithm_t(2), ARGUMENT, Assert, false),
        (|c| c.num_experts = 0, ARGUMENT, Assert, false),
        (|c| c.max_token_bytes = 0, ARGUMENT, Assert, false),
        // The row length comes before the token count, the experts before both.
        (|c| (c.max_token_bytes, c.max_dispatch_tokens_per_rank) = (8, 0), ARGUMENT, Return, false),
        (|c| c.max_dispatch_tokens_per_rank = 0, ARGUMENT, Assert, false),
        (|c| c.max_recv_tokens_per_rank = 3, ARGUMENT, Throw, true),
        (|c| c.num_topk = 9, ARGUMENT, Throw, true),
        (
            |c| {
                c.max_recv_tokens_per_rank = 0;
                c.overflow_policy = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;
            },
            ARGUMENT,
            Throw,
            true,
        ),
        (
            |c| {
                c.max_recv_tokens_per_rank = 0;
                c.max_dispatch_tokens_per_rank = u32::MAX;
                c.num_topk = 2;
            },
            ARGUMENT,
            Throw,
            true,
        ),
    ];
    ranks(1, |comm| {
        for (change, code, class, out) in rows {
            let mut config = ht_config();
            change(&mut config);
            let (found, group) = create(comm, &config);
            refused(found, code, class);
            assert_eq!(!group.is_null(), out);
        }
        let call = api().ncclEpCreateGroup;
        let config = ht_config();
        let code = unsafe { call(null_mut(), comm.as_raw(), &config) };
        refused(code, ARGUMENT, Assert);
        let mut group = null_mut();
        refused(unsafe { call(&mut group, null_mut(), &config) }, ARGUMENT, Assert);
        refused(unsafe { call(&mut group, comm.as_raw(), null()) }, ARGUMENT, Return);
    });
}

#[test]
fn budgets_that_differ_are_refused_on_every_rank() {
    ranks(2, |comm| {
        let config = ncclEpGroupConfig_t {
            max_recv_tokens_per_rank: 16 + comm.rank() as u32,
            ..G2.config(HT, H)
        };
        refused(create(comm, &config).0, ARGUMENT, FailureClass::Throw);
        let config = ncclEpGroupConfig_t { max_token_bytes: 32 << comm.rank(), ..G2.config(HT, H) };
        refused(create(comm, &config).0, ARGUMENT, FailureClass::UndefinedBehaviour);
        // Both ranks are still in step.
        Group::new(comm, &G2.config(HT, H));
    });
}

#[test]
fn handles_have_a_layout_of_their_algorithm() {
    ranks(1, |comm| {
        let unset = ncclEpLayout_t::NCCL_EP_LAYOUT_UNSET;
        let wrong = [(ht_config(), RM), (ll_config(8), FLAT), (ht_config(), unset)];
        for (config, layout) in wrong.into_iter().chain([(ll_config(8), ncclEpLayout_t(4))]) {
            let group = Group::new(comm, &config);
            let (code, handle) = group.init(layout, 1, 0);
            refused(code, ARGUMENT, FailureClass::Throw);
            assert!(handle.is_null());
        }
    });
}

#[test]
fn experts_divide_over_ranks() {
    ranks(2, |comm| {
        let config = ncclEpGroupConfig_t { num_experts: 5, ..G2.config(HT, H) };
        let group = Group::new(comm, &config);
        let (code, handle) = group.init(FLAT, 2, 0);
        refused(code, ARGUMENT, FailureClass::Assert);
        assert!(handle.is_null());
    });
}

#[test]
fn group_destroy_with_live_handles_is_refused_and_can_be_made_again() {
    ranks(2, |comm| {
        for config in [G2.config(HT, H), G2.config(LL, WIDE)] {
            let group = Group::new(comm, &config);
            let handle = group.handle(EM, 2, 0);
            let code = unsafe { (api().ncclEpGroupDestroy)(group.raw) };
            refused(code, USAGE, FailureClass::UndefinedBehaviour);
            drop(handle);
        }
        ok(unsafe { (api().ncclEpGroupDestroy)(null_mut()) });
        ok(unsafe { (api().ncclEpHandleDestroy)(null_mut()) });
    });
}

#[test]
fn null_handles_are_arguments() {
    let api = api();
    let mut ids = ids(1, &[0]);
    let code = unsafe { (api.ncclEpUpdateHandle)(null_mut(), ids.d(), null(), null_mut()) };
    refused(code, ARGUMENT, FailureClass::Assert);
    let (inputs, outputs) = (ncclEpDispatchInputs_t::init(), ncclEpDispatchOutputs_t::init());
    let call = api.ncclEpDispatch;
    let dispatch = |i, o| unsafe { call(null_mut(), i, o, null(), null(), null_mut()) };
    refused(dispatch(&inputs, &outputs), ARGUMENT, FailureClass::UndefinedBehaviour);
    refused(dispatch(null(), &outputs), ARGUMENT, FailureClass::Return);
    refused(dispatch(&inputs, null()), ARGUMENT, FailureClass::Return);
    let (inputs, outputs) = (ncclEpCombineInputs_t::init(), ncclEpCombineOutputs_t::init());
    let code = unsafe { (api.ncclEpCombine)(null_mut(), &inputs, &outputs, null(), null_mut()) };
    refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
    let code = unsafe { (api.ncclEpComplete)(null_mut(), null(), null_mut()) };
    refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
}

#[test]
fn updates_check_the_ids_descriptor() {
    use FailureClass::{Assert, UndefinedBehaviour};
    ranks(1, |comm| {
        let ht = Ht::fresh(comm, ONE, FLAT, 0, |_| ());
        let update = |ids: &mut Ten<i64>| update_with(&ht.handle, ids, null());
        refused(update(&mut Ten::filled(&[4], 0)), ARGUMENT, Assert);
        refused(update(&mut Ten::filled(&[4, 2], 0)), ARGUMENT, Assert);
        refused(update(&mut Ten::filled(&[5, 1], 0)), ARGUMENT, Assert);
        refused(update(&mut ids(1, &[7, 8])), ARGUMENT, UndefinedBehaviour);
        let mut floats = Ten::filled(&[4, 1], 0.0_f32);
        refused(update_with(&ht.handle, &mut floats, null()), ARGUMENT, Assert);
        let mut wrong = ids(1, &[0]);
        wrong.raw().size = 47;
        refused(update(&mut wrong), ARGUMENT, Assert);
        let mut wrong = ids(1, &[0]);
        wrong.raw().magic = NCCL_EP_MAGIC;
        refused(update(&mut wrong), ARGUMENT, Assert);
        let mut unbound = ids(1, &[0]);
        let unbound = unbound.raw();
        unbound.data = null_mut();
        let call = api().ncclEpUpdateHandle;
        let code = unsafe { call(ht.handle.raw, unbound, null(), null_mut()) };
        refused(code, ARGUMENT, Assert);
        let code = unsafe { (api().ncclEpUpdateHandle)(ht.handle.raw, null(), null(), null_mut()) };
        refused(code, ARGUMENT, Assert);
        // Nothing of that was an update.
        let mut call = ht.dispatch_into(32);
        call.tokens = Some(Ten::filled(&[4, H], bf16::ZERO));
        refused(call.call(&ht.handle), USAGE, FailureClass::Trap);
    });
}

#[test]
fn counters_are_checked_after_the_update_took_place() {
    use FailureClass::Assert;
    ranks(1, |comm| {
        let ht = Ht::fresh(comm, ONE, FLAT, 0, |_| ());
        let mut wide = Ten::filled(&[8], 0_i64);
        let mut short = Ten::filled(&[7], 0_i32);
        let mut info = ncclEpLayoutInfo_t::init();
        for tensor in [wide.d(), short.d()] {
            info.expert_counters = tensor;
            refused(update_with(&ht.handle, &mut ONE.ids(0), &info), ARGUMENT, Assert);
            ht.dispatch();
        }
        let em = Ht::fresh(comm, ONE, EM, 0, |_| ());
        let mut narrow = Ten::filled(&[8], 0_i32);
        info.expert_counters = wide.d();
        info.expert_offsets = narrow.d();
        refused(update_with(&em.handle, &mut ONE.ids(0), &info), ARGUMENT, Assert);
        // All of one type, whichever.
        info.expert_counters = null_mut();
        ok(update_with(&em.handle, &mut ONE.ids(0), &info));
        assert_eq!(narrow.data, [0, 1, 2, 3, 4, 4, 4, 4]);
    });
}

#[test]
fn low_latency_updates_take_no_layout_info_and_check_ids() {
    ranks(2, |comm| {
        let ll = Ll::new(comm, G2, EM);
        let info = ncclEpLayoutInfo_t::init();
        let code = update_with(&ll.handle, &mut G2.ids(0), &info);
        refused(code, ARGUMENT, FailureClass::Assert);
        let lowest = 4 - 65536;
        let mut fine = ids(2, &[lowest, 3]);
        ok(update_with(&ll.handle, &mut fine, null()));
        for wrong in [lowest - 1, 4] {
            let code = update_with(&ll.handle, &mut ids(2, &[0, wrong]), null());
            refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
        }
        // More tokens than a rank dispatches are noticed at dispatch.
        let mut many = Ten::filled(&[5, 2], 0_i64);
        ok(update_with(&ll.handle, &mut many, null()));
        let mut call = ll.dispatch_call(WIDE);
        call.tokens = Some(Ten::filled(&[5, WIDE], bf16::ZERO));
        refused(call.call(&ll.handle), ARGUMENT, FailureClass::Assert);
    });
}

#[test]
fn low_latency_without_an_update() {
    ranks(2, |comm| {
        let group = Group::new(comm, &G2.config(LL, WIDE));
        let handle = group.handle(EM, 2, 0);
        let ll =
            Ll { fixture: G2, rank: comm.rank(), handle, group: group.into(), ids: ids(2, &[]) };
        let code = ll.dispatch_call(WIDE).call(&ll.handle);
        refused(code, ARGUMENT, FailureClass::Return);
        let code = ll.combine_call(&[0.0; 16], WIDE).call(&ll.handle);
        refused(code, USAGE, FailureClass::Assert);
    });
}

#[test]
fn recipes_are_known_and_none_has_no_scales() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut call = ht.dispatch_into(16);
        let quant_recipe = ncclEpDispQuant_t(3);
        call.config = Some(ncclEpDispatchConfig_t { quant_recipe, ..VersionedStruct::init() });
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
        let mut call = ht.combine_of(&[0.0; 16]);
        let quant_recipe = ncclEpCombQuant_t(2);
        call.config = Some(ncclEpCombineConfig_t { quant_recipe, ..VersionedStruct::init() });
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
        let mut call = ht.dispatch_into(16);
        call.out_tokens = None;
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn high_throughput_dispatch_arguments() {
    use FailureClass::{Assert, Return, UndefinedBehaviour};
    type Change = fn(&mut Dispatch);
    let pre: [(Change, FailureClass); 7] = [
        (|d| d.tokens = Some(Ten::filled(&[3, H], bf16::ZERO)), Assert),
        (|d| d.tokens = Some(Ten::filled(&[4, 2 * H], bf16::ZERO)), Assert),
        (|d| d.tokens = Some(Ten::filled(&[4, 4], bf16::ZERO)), Assert),
        (|d| d.out_tokens = Some(Ten::filled(&[16], bf16::ZERO)), Return),
        (|d| d.out_tokens = Some(Ten::filled(&[16, 8], bf16::ZERO)), UndefinedBehaviour),
        (|d| d.weights = None, Return),
        (|d| d.weights = Some(Ten::filled(&[4, 1], 0.0)), Assert),
    ];
    let late: [(Change, FailureClass); 5] = [
        (|d| d.out_weights = None, Return),
        (|d| d.out_ids = None, Return),
        (|d| d.out_weights = Some(Ten::filled(&[16], 0.0)), Assert),
        (|d| d.out_ids = Some(Ten::filled(&[15, 2], 0)), Return),
        (
            |d| {
                d.out_ids = Some(Ten::filled(&[3, 2], 0));
                d.out_weights = Some(Ten::filled(&[3, 2], 0.0));
            },
            Return,
        ),
    ];
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        for (change, class) in pre {
            let mut call = ht.dispatch_into(16);
            change(&mut call);
            refused(call.call(&ht.handle), ARGUMENT, class);
        }
        // Late rules: rank 0 breaks them and has communicated, rank 1 receives as ever.
        for (change, class) in late {
            let mut call = ht.dispatch_into(16);
            if comm.rank() == 1 {
                ok(call.call(&ht.handle));
                assert_eq!(Received::of(call).rows[..5], [1., 2., 5., 6., 8.]);
            } else {
                change(&mut call);
                refused(call.call(&ht.handle), ARGUMENT, class);
                let rows = values(&call.out_tokens.unwrap().data, H);
                assert!(rows.iter().all(|&x| x == CANARY));
            }
        }
        let mut call = ht.dispatch_into(16);
        let mut info = ncclEpLayoutInfo_t::init();
        info.recv_topk_idx_kind = ncclEpExpertIdKind_t(3);
        let mut inputs = ncclEpDispatchInputs_t::init();
        (inputs.tokens, inputs.topk_weights) = (d(&mut call.tokens), d(&mut call.weights));
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = d(&mut call.out_tokens);
        outputs.topk_weights = d(&mut call.out_weights);
        outputs.topk_idx = d(&mut call.out_ids);
        let dispatch = api().ncclEpDispatch;
        let code = unsafe { dispatch(ht.handle.raw, &inputs, &outputs, &info, null(), null_mut()) };
        refused(code, ARGUMENT, FailureClass::Trap);
        ht.dispatch();
    });
}

#[test]
fn high_throughput_combine_arguments() {
    use FailureClass::{Assert, JitAbort, Return, UndefinedBehaviour};
    type Change = fn(&mut Combine);
    let rows: [(Change, FailureClass); 7] = [
        (|c| c.tokens = Some(Ten::filled(&[16, 1, H], bf16::ZERO)), Assert),
        (|c| c.tokens = Some(Ten::filled(&[16, 4], bf16::ZERO)), Assert),
        (|c| c.in_weights = Some(Ten::filled(&[16, 2], 0.0)), Return),
        (|c| c.out = Some(Ten::filled(&[3, H], bf16::ZERO)), Assert),
        (|c| c.out = None, Assert),
        (|c| c.tokens = Some(Ten::filled(&[3, H], bf16::ZERO)), UndefinedBehaviour),
        (
            |c| {
                c.tokens = Some(Ten::filled(&[16, 2 * H], bf16::ZERO));
                c.out = Some(Ten::filled(&[4, 2 * H], bf16::ZERO));
            },
            UndefinedBehaviour,
        ),
    ];
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        for (change, class) in rows {
            let mut call = ht.combine_of(&[0.0; 16]);
            change(&mut call);
            refused(call.call(&ht.handle), ARGUMENT, class);
        }
        // Four fp32 elements are 16 bytes, but no group of eight elements.
        let (mut input, mut output) =
            (Ten::filled(&[16, 4], 0.0_f32), Ten::filled(&[4, 4], 0.0_f32));
        let mut inputs = ncclEpCombineInputs_t::init();
        inputs.tokens = input.d();
        let mut outputs = ncclEpCombineOutputs_t::init();
        outputs.tokens = output.d();
        let call = api().ncclEpCombine;
        let code = unsafe { call(ht.handle.raw, &inputs, &outputs, null(), null_mut()) };
        refused(code, ARGUMENT, JitAbort);
        // An output of another type is not noticed there.
        let (mut input, mut output) =
            (Ten::filled(&[16, H], bf16::ZERO), Ten::filled(&[4, H], 0.0_f32));
        (inputs.tokens, outputs.tokens) = (input.d(), output.d());
        let code = unsafe { call(ht.handle.raw, &inputs, &outputs, null(), null_mut()) };
        refused(code, ARGUMENT, UndefinedBehaviour);
    });
}

#[test]
fn sizes_that_kernels_cannot_read() {
    ranks(1, |comm| {
        // Two experts in all: the routing bitmap is read four at a time.
        let two = Fixture { experts: 2, ids: |_| vec![0], values: |_| vec![1.0], ..ONE };
        let ht = Ht::new(comm, two, FLAT);
        refused(ht.dispatch_into(32).call(&ht.handle), ARGUMENT, FailureClass::Assert);
        // Five tokens on one rank: so is the routing map.
        let five = Fixture { max_tokens: 5, ids: |_| vec![0], values: |_| vec![1.0], ..ONE };
        let ht = Ht::new(comm, five, FLAT);
        refused(ht.dispatch_into(32).call(&ht.handle), ARGUMENT, FailureClass::Assert);
    });
}

#[test]
fn low_latency_dispatch_arguments() {
    use FailureClass::Assert;
    type Change = fn(&mut Dispatch);
    let em: [Change; 8] = [
        |d| d.tokens = Some(Ten::filled(&[3, WIDE], bf16::ZERO)),
        |d| d.tokens = Some(Ten::filled(&[4, 8], bf16::ZERO)),
        |d| d.tokens = Some(Ten::filled(&[4, 2 * WIDE], bf16::ZERO)),
        |d| d.weights = Some(Ten::filled(&[4, 2], 0.0)),
        |d| d.out_tokens = Some(Ten::filled(&[2, 7, WIDE], bf16::ZERO)),
        |d| d.out_weights = Some(Ten::filled(&[2, 8], 0.0)),
        |d| d.counters = Some(Ten::filled(&[3], 0)),
        |d| d.src_counters = Some(Ten::filled(&[2], 0)),
    ];
    let rm: [Change; 6] = [
        |d| d.weights = None,
        |d| d.out_weights = None,
        |d| (d.out_ids32, d.out_ids) = (None, Some(Ten::filled(&[2, 4, 2], 0))),
        |d| d.out_ids32 = Some(Ten::filled(&[2, 4, 1], 0)),
        |d| d.counters = Some(Ten::filled(&[2], 0)),
        |d| d.src_counters = Some(Ten::filled(&[1], 0)),
    ];
    ranks(2, |comm| {
        for (layout, changes) in [(EM, &em[..]), (RM, &rm[..])] {
            let ll = Ll::new(comm, G2, layout);
            for change in changes {
                let mut call = ll.dispatch_call(WIDE);
                change(&mut call);
                refused(call.call(&ll.handle), ARGUMENT, Assert);
            }
            ll.dispatch();
        }
    });
}

#[test]
fn low_latency_combine_rows() {
    ranks(2, |comm| {
        let config = ncclEpGroupConfig_t { max_token_bytes: 65536, ..G2.config(LL, WIDE) };
        let ll = Ll::on(Group::new(comm, &config).into(), comm.rank(), G2, RM);
        ll.dispatch();
        let combine = |hidden| ll.combine_call(&[0.0; 8], hidden).call(&ll.handle);
        refused(combine(64), ARGUMENT, FailureClass::Assert);
        refused(combine(256), INTERNAL, FailureClass::Return);
        refused(combine(768), INTERNAL, FailureClass::Return);
        refused(combine(16384), ARGUMENT, FailureClass::Return);
        ok(combine(15872));
    });
}

#[test]
fn zero_copy_on_needs_windows() {
    ranks(2, |comm| {
        let zero_copy = ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;
        let ht = Ht::with(comm, G2, FLAT, 0, |c| c.zero_copy = zero_copy);
        refused(ht.dispatch_into(16).call(&ht.handle), ARGUMENT, FailureClass::Return);
        refused(ht.combine_of(&[0.0; 16]).call(&ht.handle), ARGUMENT, FailureClass::Return);
        let config = ncclEpGroupConfig_t { zero_copy, ..G2.config(LL, WIDE) };
        let group = std::rc::Rc::new(Group::new(comm, &config));
        for layout in [EM, RM] {
            let ll = Ll::on(group.clone(), comm.rank(), G2, layout);
            let mut call = ll.dispatch_call(WIDE);
            refused(call.call(&ll.handle), ARGUMENT, FailureClass::Return);
            call.out_tokens = call.out_tokens.map(|tensor| window(comm, tensor));
            if layout == EM {
                refused(call.call(&ll.handle), ARGUMENT, FailureClass::Return);
            } else {
                ok(call.call(&ll.handle));
                assert_eq!(ll.received(call).counters, [[3, 1], [2, 3]][comm.rank()]);
            }
        }
    });
}
