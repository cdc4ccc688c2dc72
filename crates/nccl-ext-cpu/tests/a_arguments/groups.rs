//! Creating and destroying groups: A11 to A14, A23 and the order of the checks.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use nccl_ext_core::raw::cudaError_t;

use super::*;

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
    // SAFETY: a group passes a pointer to write and its context: the test's vector, which the test
    // does not touch while the group lives.
    unsafe {
        (*sizes.cast::<Vec<usize>>()).push(bytes);
        *ptr = Box::into_raw(Box::new(bytes)).cast();
    }
    cudaError_t::cudaSuccess
}

unsafe extern "C" fn take(ptr: *mut c_void, _: *mut c_void) -> cudaError_t {
    LIVE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: a group gives back once what `give` has made.
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
        let mut size = 0;
        let code = raw::memory_size(group, FLAT, &mut size, 1);
        refused(code, USAGE, FailureClass::UndefinedBehaviour);
        ok(raw::destroy_group(group));
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
        ok(raw::destroy_group(group));
    });
}

#[test]
fn a13_half_built_low_latency_groups_cannot_be_destroyed() {
    ranks(1, |comm| {
        let config = ncclEpGroupConfig_t { max_num_sms: 133, ..ONE.config(LL, WIDE) };
        let (code, group) = create(comm, &config);
        refused(code, USAGE, FailureClass::Return);
        let code = raw::destroy_group(group);
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

/// All mask functions, with NULL where they take a pointer.
fn mask_codes(group: ncclEpGroup_t) -> [(ncclResult_t, &'static str); 5] {
    let api = api();
    // SAFETY: the group lives or is null, and a null pointer is refused before it is used.
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
        let config = ht_config();
        let code = raw::create_group(null_mut(), comm.as_raw(), &config);
        refused(code, ARGUMENT, Assert);
        let mut group = null_mut();
        refused(raw::create_group(&mut group, null_mut(), &config), ARGUMENT, Assert);
        refused(raw::create_group(&mut group, comm.as_raw(), null()), ARGUMENT, Return);
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
fn group_destroy_with_live_handles_is_refused_and_can_be_made_again() {
    ranks(2, |comm| {
        for config in [G2.config(HT, H), G2.config(LL, WIDE)] {
            let group = Group::new(comm, &config);
            let handle = group.handle(EM, 2, 0);
            let code = raw::destroy_group(group.raw);
            refused(code, USAGE, FailureClass::UndefinedBehaviour);
            drop(handle);
        }
        ok(raw::destroy_group(null_mut()));
        ok(raw::destroy_handle(null_mut()));
    });
}
