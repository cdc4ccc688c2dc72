//! Creating handles and sizing their memory: A10, A15 to A19, A24 to A27.

use super::*;

#[test]
fn a10_create_handle_with_a_layout_info_of_39_bytes() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ht_config());
        let info = ncclEpLayoutInfo_t { size: 39, ..VersionedStruct::init() };
        let mut handle = null_mut();
        let mut ids = ONE.ids(0);
        let code = raw::create_handle(&mut handle, group.raw, FLAT, ids.d(), &info);
        refused(code, ARGUMENT, FailureClass::Return);
        assert!(handle.is_null());
    });
}

#[test]
fn a10_create_handle_is_init_and_update() {
    ranks(4, |comm| {
        let mut ht = Ht::fresh(comm, F4, FLAT, 0, |_| ());
        let (mut handle, mut ids) = (null_mut(), F4.ids(comm.rank()));
        ok(raw::create_handle(&mut handle, ht.group.raw, FLAT, ids.d(), null()));
        ht.handle = Handle { raw: handle, layout: FLAT, topk: 1 };
        let rows = ht.dispatch().rows;
        assert_eq!(ht.combine(&rows), (F4.values)(comm.rank()));
    });
}

#[test]
fn a15_low_latency_topk_of_33() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ll_config(64));
        let (code, handle) = group.init(EM, 33, 0);
        refused(code, ARGUMENT, FailureClass::Return);
        assert!(!handle.is_null());
        // It counts as a handle of the group until it is destroyed.
        let code = raw::destroy_group(group.raw);
        refused(code, USAGE, FailureClass::UndefinedBehaviour);
        ok(raw::destroy_handle(handle));
    });
}

#[test]
fn a16_low_latency_topk_of_32_needs_33_warps() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ll_config(64));
        let (code, handle) = group.init(EM, 32, 0);
        refused(code, USAGE, FailureClass::Return);
        ok(raw::destroy_handle(handle));
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
            ok(raw::destroy_handle(handle));
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
        ok(raw::destroy_handle(handle));
    });
}

#[test]
fn a18_high_throughput_topk_beyond_the_groups() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ncclEpGroupConfig_t { num_topk: 2, ..ht_config() });
        let (code, handle) = group.init(FLAT, 3, 0);
        refused(code, USAGE, FailureClass::Return);
        ok(raw::destroy_handle(handle));
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
        ok(raw::destroy_handle(handle));
        drop(group.handle(FLAT, 1, 0));
    });
}

fn memory_size(group: &Group, layout: ncclEpLayout_t, topk: i32) -> (ncclResult_t, usize) {
    let mut size = 0;
    (raw::memory_size(group.raw, layout, &mut size, topk), size)
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
            let code = raw::memory_size(group.raw, FLAT, null_mut(), 1);
            refused(code, ARGUMENT, FailureClass::Assert);
            let code = raw::memory_size(null_mut(), FLAT, null_mut(), 1);
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
            ok(raw::destroy_handle(handle));
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
        ok(raw::destroy_handle(handle));
    });
}

// Rules of EP 2.1 and 3.2 that have no vector of their own.

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
