//! Creating handles and sizing their memory.

use super::*;

/// EP vector A10.
#[test]
fn a_layout_info_of_39_bytes_is_refused() {
    every_rank(1, |comm| {
        let group = TestGroup::new(comm, &ht_config());
        let info = ncclEpLayoutInfo_t { size: 39, ..VersionedStruct::init() };
        let mut handle = null_mut();
        let mut ids = ONE.ids(0);
        let code = raw_calls::create_handle(&mut handle, group.raw, FLAT, ids.descriptor(), &info);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
        assert!(handle.is_null());
    });
}

#[test]
fn create_handle_is_init_and_update() {
    every_rank(4, |comm| {
        let mut ht = HighThroughputRank::fresh(comm, F4, FLAT, 0, |_| ());
        let (mut handle, mut ids) = (null_mut(), F4.ids(comm.rank()));
        assert_ok(raw_calls::create_handle(
            &mut handle,
            ht.group.raw,
            FLAT,
            ids.descriptor(),
            null(),
        ));
        ht.handle = TestHandle { raw: handle, layout: FLAT, topk: 1 };
        let rows = ht.dispatch().rows;
        assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
    });
}

/// EP vector A15.
#[test]
fn low_latency_topk_is_at_most_32() {
    every_rank(1, |comm| {
        let group = TestGroup::new(comm, &ll_config(64));
        let (code, handle) = group.try_handle(EXPERT_MAJOR, 33, 0);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
        assert!(!handle.is_null());
        // It counts as a handle of the group until it is destroyed.
        let code = raw_calls::destroy_group(group.raw);
        assert_refused(code, INVALID_USAGE, FailureClass::UndefinedBehaviour);
        assert_ok(raw_calls::destroy_handle(handle));
    });
}

/// EP vector A16.
#[test]
fn low_latency_topk_of_32_needs_33_warps() {
    every_rank(1, |comm| {
        let group = TestGroup::new(comm, &ll_config(64));
        group.assert_handle_refused((EXPERT_MAJOR, 32, 0), INVALID_USAGE, FailureClass::Return);
        drop(group.handle(EXPERT_MAJOR, 31, 0));
    });
}

/// EP 3.2.
#[test]
fn other_numbers_of_experts_have_other_warps() {
    // Experts, warps that a block of one of 132 SMs has for each of its experts less one.
    let rows = [
        ("one expert a block", (132, 31)),
        ("two", (264, 31)),
        ("three", (396, 29)),
        ("eleven", (1452, 21)),
        ("fourteen", (1848, 27)),
    ];
    check_rows(rows, |(experts, most)| {
        every_rank(1, |comm| {
            let group = TestGroup::new(comm, &ll_config(experts));
            drop(group.handle(EXPERT_MAJOR, most, 0));
            let more = (EXPERT_MAJOR, most as i32 + 1, 0);
            group.assert_handle_refused(more, INVALID_USAGE, FailureClass::Return);
        });
    });
    every_rank(1, |comm| {
        let (code, _leaked) = TestGroup::try_new(comm, &ll_config(14 * 132 + 1));
        assert_refused(code, INVALID_USAGE, FailureClass::Return);
    });
}

/// EP vector A17.
#[test]
fn high_throughput_topk_of_minus_1_is_refused() {
    every_rank(1, |comm| {
        let group = TestGroup::new(comm, &ht_config());
        group.assert_handle_refused((FLAT, -1, 0), INVALID_USAGE, FailureClass::Return);
    });
}

/// EP vector A18.
#[test]
fn high_throughput_topk_is_at_most_the_groups() {
    every_rank(1, |comm| {
        let group = TestGroup::new(comm, &ncclEpGroupConfig_t { num_topk: 2, ..ht_config() });
        group.assert_handle_refused((FLAT, 3, 0), INVALID_USAGE, FailureClass::Return);
        drop(group.handle(FLAT, 2, 0));
    });
}

/// EP vector A19.
#[test]
fn eager_expert_major_needs_the_groups_topk() {
    every_rank(1, |comm| {
        let config = ncclEpGroupConfig_t { max_recv_tokens_per_rank: 0, ..ht_config() };
        let group = TestGroup::new(comm, &config);
        group.assert_handle_refused((EXPERT_MAJOR, 1, 0), INVALID_USAGE, FailureClass::Return);
        drop(group.handle(FLAT, 1, 0));
    });
}

fn memory_size(group: &TestGroup, layout: ncclEpLayout_t, topk: i32) -> (ncclResult_t, usize) {
    let mut size = 0;
    (raw_calls::memory_size(group.raw, layout, &mut size, topk), size)
}

/// EP vector A24.
#[test]
fn low_latency_handle_memory_is_512_bytes() {
    every_rank(2, |comm| {
        let group = TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN));
        assert_eq!(memory_size(&group, EXPERT_MAJOR, 2), (SUCCESS, 512));
        assert_eq!(memory_size(&group, RANK_MAJOR, 2), (SUCCESS, 512));
    });
}

/// EP 3.1.
#[test]
fn memory_size_arguments_are_checked() {
    let algorithms = [("high throughput", HIGH_THROUGHPUT), ("low latency", LOW_LATENCY)];
    check_rows(algorithms, |algorithm| {
        every_rank(1, |comm| {
            let group = TestGroup::new(comm, &ONE.config(algorithm, LL_HIDDEN));
            let code = memory_size(&group, FLAT, 0).0;
            assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
            let code = memory_size(&group, ncclEpLayout_t::NCCL_EP_LAYOUT_UNSET, 1).0;
            assert_refused(code, INVALID_ARGUMENT, FailureClass::Throw);
            // The layout is not compared with the algorithm.
            let (code, size) = memory_size(&group, ncclEpLayout_t(77), 1);
            assert_ok(code);
            assert!(size > 0);
            for group in [group.raw, null_mut()] {
                let code = raw_calls::memory_size(group, FLAT, null_mut(), 1);
                assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
            }
        });
    });
}

/// The exact size is accepted, one byte less is not.
fn buffer_boundary(layout: ncclEpLayout_t, bytes: u64) {
    every_rank(2, |comm| {
        for (bytes, fits) in [(bytes - 1, false), (bytes, true)] {
            let config = ncclEpGroupConfig_t {
                rdma_buffer_size: bytes,
                ..G2.config(LOW_LATENCY, LL_HIDDEN)
            };
            let group = TestGroup::new(comm, &config);
            if fits {
                drop(group.handle(layout, 2, 0));
            } else {
                group.assert_handle_refused((layout, 2, 0), INVALID_USAGE, FailureClass::Return);
            }
        }
    });
}

/// EP vector A25.
#[test]
fn an_expert_major_buffer_of_50176_bytes_is_just_enough() {
    buffer_boundary(EXPERT_MAJOR, 50176);
}

/// EP vector A26.
#[test]
fn a_rank_major_buffer_of_33536_bytes_is_just_enough() {
    buffer_boundary(RANK_MAJOR, 33536);
}

/// EP vector A27.
#[test]
fn buffer_regions_are_multiples_of_16() {
    every_rank(1, |comm| {
        let config = ncclEpGroupConfig_t {
            num_experts: 4,
            max_token_bytes: 512,
            max_dispatch_tokens_per_rank: 1,
            ..ll_config(4)
        };
        let group = TestGroup::new(comm, &config);
        group.assert_handle_refused((EXPERT_MAJOR, 1, 0), INVALID_ARGUMENT, FailureClass::Throw);
    });
}

/// EP 3.2.
#[test]
fn handles_have_a_layout_of_their_algorithm() {
    let unset = ncclEpLayout_t::NCCL_EP_LAYOUT_UNSET;
    let rows = [
        ("high throughput, rank-major", (HIGH_THROUGHPUT, RANK_MAJOR)),
        ("high throughput, unset", (HIGH_THROUGHPUT, unset)),
        ("low latency, FLAT", (LOW_LATENCY, FLAT)),
        ("low latency, unknown", (LOW_LATENCY, ncclEpLayout_t(4))),
    ];
    check_rows(rows, |(algorithm, layout)| {
        every_rank(1, |comm| {
            let group = TestGroup::new(comm, &ONE.config(algorithm, LL_HIDDEN));
            let (code, handle) = group.try_handle(layout, 1, 0);
            assert_refused(code, INVALID_ARGUMENT, FailureClass::Throw);
            assert!(handle.is_null());
        });
    });
}

/// EP 3.2.
#[test]
fn experts_divide_over_ranks() {
    every_rank(2, |comm| {
        let config =
            ncclEpGroupConfig_t { num_experts: 5, ..G2.config(HIGH_THROUGHPUT, HT_HIDDEN) };
        let group = TestGroup::new(comm, &config);
        let (code, handle) = group.try_handle(FLAT, 2, 0);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
        assert!(handle.is_null());
    });
}
