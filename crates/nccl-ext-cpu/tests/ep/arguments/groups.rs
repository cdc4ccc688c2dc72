//! Creating and destroying groups.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use nccl_ext_core::raw::cudaError_t;

use super::*;

/// EP vector A11.
#[test]
fn token_bytes_are_a_multiple_of_16() {
    every_rank(1, |comm| {
        let (code, group) =
            TestGroup::try_new(comm, &ncclEpGroupConfig_t { max_token_bytes: 24, ..ht_config() });
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
        assert!(group.is_null());
    });
}

/// Blocks that an allocator of the tests has given and not got back.
static LIVE: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn allocate_and_count(
    ptr: *mut *mut c_void,
    bytes: usize,
    sizes: *mut c_void,
) -> cudaError_t {
    LIVE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: a group passes a pointer to write and its context: the test's vector, which the test
    // does not touch while the group lives.
    unsafe {
        (*sizes.cast::<Vec<usize>>()).push(bytes);
        *ptr = Box::into_raw(Box::new(bytes)).cast();
    }
    cudaError_t::cudaSuccess
}

unsafe extern "C" fn free_and_count(ptr: *mut c_void, _: *mut c_void) -> cudaError_t {
    LIVE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: a group gives back once what `allocate_and_count` has made.
    drop(unsafe { Box::from_raw(ptr.cast::<usize>()) });
    cudaError_t::cudaSuccess
}

/// EP vector A12.
#[test]
fn one_allocation_function_without_the_other_is_refused() {
    every_rank(1, |comm| {
        let mut config = ht_config();
        config.alloc.alloc_fn = Some(allocate_and_count);
        let (code, group) = TestGroup::try_new(comm, &config);
        assert_refused(code, INVALID_USAGE, FailureClass::Return);
        assert!(!group.is_null());
        // What is left behind can be destroyed for high throughput, and used for nothing.
        let mut size = 0;
        let code = raw_calls::memory_size(group, FLAT, &mut size, 1);
        assert_refused(code, INVALID_USAGE, FailureClass::UndefinedBehaviour);
        assert_ok(raw_calls::destroy_group(group));
    });
}

/// EP 2.1.
#[test]
fn allocation_functions_are_called_in_pairs() {
    let all = every_rank(1, |comm| {
        let mut sizes = Vec::<usize>::new();
        let mut config = ht_config();
        config.alloc.alloc_fn = Some(allocate_and_count);
        config.alloc.free_fn = Some(free_and_count);
        config.alloc.context = (&raw mut sizes).cast();
        let group = TestGroup::new(comm, &config);
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

/// EP vector A13.
#[test]
fn more_sms_than_the_device_has_are_refused() {
    every_rank(1, |comm| {
        let (code, group) =
            TestGroup::try_new(comm, &ncclEpGroupConfig_t { max_num_sms: 133, ..ht_config() });
        assert_refused(code, INVALID_USAGE, FailureClass::Return);
        assert!(!group.is_null());
        assert_ok(raw_calls::destroy_group(group));
    });
}

/// EP 2.5.
#[test]
fn half_built_low_latency_groups_cannot_be_destroyed() {
    every_rank(1, |comm| {
        let config = ncclEpGroupConfig_t { max_num_sms: 133, ..ONE.config(LOW_LATENCY, LL_HIDDEN) };
        let (code, group) = TestGroup::try_new(comm, &config);
        assert_refused(code, INVALID_USAGE, FailureClass::Return);
        let code = raw_calls::destroy_group(group);
        assert_refused(code, INVALID_USAGE, FailureClass::Throw);
    });
}

/// EP vector A14.
#[test]
fn a_group_config_of_version_1_has_the_defaults_of_version_2() {
    every_rank(1, |comm| {
        let config = ncclEpGroupConfig_t {
            size: 96,
            zero_copy: ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON,
            num_topk: 1,
            ..ht_config()
        };
        let group = TestGroup::new(comm, &config);
        // A group with `num_topk` 1 would refuse 2, one with zero_copy ON would need windows.
        let two = Fixture { topk: 2, ids: |_| vec![0, 1], values: |_| vec![3.0], ..ONE };
        let handle = group.handle(FLAT, 2, 0);
        let ht = HighThroughputRank::with_handle(two, 0, group, handle);
        assert_ok(update_handle(&ht.handle, &mut int64_ids(2, &[0, 1]), None));
        assert_eq!(ht.dispatch().rows[0], 3.0);
    });
}

/// EP 2.1.
#[test]
fn group_creation_refuses_in_the_vendors_order() {
    use FailureClass::{Assert, Return, Throw};
    type Change = fn(&mut ncclEpGroupConfig_t);
    // What is changed, the class of the refusal, and whether it leaves something in the group's
    // place.
    let rows: [(&str, (Change, FailureClass, bool)); 11] = [
        ("size", (|c| c.size = 95, Return, false)),
        ("magic", (|c| c.magic = 0, Return, false)),
        ("algorithm", (|c| c.algorithm = ncclEpAlgorithm_t(2), Assert, false)),
        ("no experts", (|c| c.num_experts = 0, Assert, false)),
        ("no token bytes", (|c| c.max_token_bytes = 0, Assert, false)),
        (
            "token bytes before tokens",
            (|c| (c.max_token_bytes, c.max_dispatch_tokens_per_rank) = (8, 0), Return, false),
        ),
        ("no tokens", (|c| c.max_dispatch_tokens_per_rank = 0, Assert, false)),
        ("a budget below a rank's tokens", (|c| c.max_recv_tokens_per_rank = 3, Throw, true)),
        ("more experts a token than there are", (|c| c.num_topk = 9, Throw, true)),
        (
            "eager and dropping",
            (
                |c| {
                    c.max_recv_tokens_per_rank = 0;
                    c.overflow_policy = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;
                },
                Throw,
                true,
            ),
        ),
        (
            "an eager bound beyond 32 bits",
            (
                |c| {
                    c.max_recv_tokens_per_rank = 0;
                    c.max_dispatch_tokens_per_rank = u32::MAX;
                    c.num_topk = 2;
                },
                Throw,
                true,
            ),
        ),
    ];
    check_rows(rows, |(change, class, left)| {
        every_rank(1, |comm| {
            let mut config = ht_config();
            change(&mut config);
            let (code, group) = TestGroup::try_new(comm, &config);
            assert_refused(code, INVALID_ARGUMENT, class);
            assert_eq!(!group.is_null(), left);
        });
    });
    every_rank(1, |comm| {
        let config = ht_config();
        let code = raw_calls::create_group(null_mut(), comm.as_raw(), &config);
        assert_refused(code, INVALID_ARGUMENT, Assert);
        let mut group = null_mut();
        assert_refused(
            raw_calls::create_group(&mut group, null_mut(), &config),
            INVALID_ARGUMENT,
            Assert,
        );
        assert_refused(
            raw_calls::create_group(&mut group, comm.as_raw(), null()),
            INVALID_ARGUMENT,
            Return,
        );
    });
}

/// EP 2.1.
#[test]
fn budgets_that_differ_are_refused_on_every_rank() {
    every_rank(2, |comm| {
        let config = ncclEpGroupConfig_t {
            max_recv_tokens_per_rank: 16 + comm.rank() as u32,
            ..G2.config(HIGH_THROUGHPUT, HT_HIDDEN)
        };
        assert_refused(TestGroup::try_new(comm, &config).0, INVALID_ARGUMENT, FailureClass::Throw);
        let config = ncclEpGroupConfig_t {
            max_token_bytes: 32 << comm.rank(),
            ..G2.config(HIGH_THROUGHPUT, HT_HIDDEN)
        };
        assert_refused(
            TestGroup::try_new(comm, &config).0,
            INVALID_ARGUMENT,
            FailureClass::UndefinedBehaviour,
        );
        // Both ranks are still in step.
        TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, HT_HIDDEN));
    });
}

#[test]
fn group_destroy_with_live_handles_is_refused_and_can_be_made_again() {
    every_rank(2, |comm| {
        for config in [G2.config(HIGH_THROUGHPUT, HT_HIDDEN), G2.config(LOW_LATENCY, LL_HIDDEN)] {
            let group = TestGroup::new(comm, &config);
            let handle = group.handle(EXPERT_MAJOR, 2, 0);
            let code = raw_calls::destroy_group(group.raw);
            assert_refused(code, INVALID_USAGE, FailureClass::UndefinedBehaviour);
            drop(handle);
        }
        assert_ok(raw_calls::destroy_group(null_mut()));
        assert_ok(raw_calls::destroy_handle(null_mut()));
    });
}
