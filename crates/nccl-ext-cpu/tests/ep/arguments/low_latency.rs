//! Low-latency dispatch and combine: the checks of their tensors.

use std::rc::Rc;

use super::*;

/// EP vector A20.
#[test]
fn low_latency_has_no_backward_pass() {
    every_rank(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, EXPERT_MAJOR);
        let mut call = ll.dispatch_call(LL_HIDDEN);
        let pass_direction = ncclEpPassDir_t::NCCL_EP_BWD_PASS;
        call.config = Some(ncclEpDispatchConfig_t { pass_direction, ..VersionedStruct::init() });
        assert_refused(call.call(&ll.handle), INVALID_USAGE, FailureClass::Return);
        let mut call = ll.combine_call(&[0.0; 16], LL_HIDDEN);
        call.config = Some(ncclEpCombineConfig_t { pass_direction, ..VersionedStruct::init() });
        assert_refused(call.call(&ll.handle), INVALID_USAGE, FailureClass::Return);
    });
}

#[test]
fn calls_need_an_update() {
    every_rank(2, |comm| {
        let group = TestGroup::new(comm, &G2.config(LOW_LATENCY, LL_HIDDEN));
        let handle = group.handle(EXPERT_MAJOR, 2, 0);
        let ll = LowLatencyRank {
            fixture: G2,
            rank: comm.rank(),
            handle,
            group: group.into(),
            ids: int64_ids(2, &[]),
        };
        let code = ll.dispatch_call(LL_HIDDEN).call(&ll.handle);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
        let code = ll.combine_call(&[0.0; 16], LL_HIDDEN).call(&ll.handle);
        assert_refused(code, INVALID_USAGE, FailureClass::Assert);
    });
}

/// EP 4.2, 4.3.
#[test]
fn dispatch_arguments_are_checked() {
    type Change = fn(&mut DispatchCall);
    let rows: [(&str, (ncclEpLayout_t, Change)); 14] = [
        ("three tokens", (EXPERT_MAJOR, |d| d.tokens = tensor(&[3, LL_HIDDEN]))),
        ("narrow tokens", (EXPERT_MAJOR, |d| d.tokens = tensor(&[4, 8]))),
        ("wide tokens", (EXPERT_MAJOR, |d| d.tokens = tensor(&[4, 2 * LL_HIDDEN]))),
        ("weights, expert-major", (EXPERT_MAJOR, |d| d.weights = tensor(&[4, 2]))),
        ("seven rows an expert", (EXPERT_MAJOR, |d| d.out_tokens = tensor(&[2, 7, LL_HIDDEN]))),
        ("output weights, expert-major", (EXPERT_MAJOR, |d| d.out_weights = tensor(&[2, 8]))),
        ("counters of three experts", (EXPERT_MAJOR, |d| d.counters = tensor(&[3]))),
        ("source counters, expert-major", (EXPERT_MAJOR, |d| d.src_counters = tensor(&[2]))),
        ("no weights", (RANK_MAJOR, |d| d.weights = None)),
        ("no output weights", (RANK_MAJOR, |d| d.out_weights = None)),
        (
            "int64 output ids",
            (RANK_MAJOR, |d| (d.out_ids32, d.out_ids) = (None, tensor(&[2, 4, 2]))),
        ),
        ("one output id a row", (RANK_MAJOR, |d| d.out_ids32 = tensor(&[2, 4, 1]))),
        ("expert counters, rank-major", (RANK_MAJOR, |d| d.counters = tensor(&[2]))),
        ("counters of one source", (RANK_MAJOR, |d| d.src_counters = tensor(&[1]))),
    ];
    check_rows(rows, |(layout, change)| {
        every_rank(2, |comm| {
            let ll = LowLatencyRank::new(comm, G2, layout);
            let mut call = ll.dispatch_call(LL_HIDDEN);
            change(&mut call);
            assert_refused(call.call(&ll.handle), INVALID_ARGUMENT, FailureClass::Assert);
            // Both ranks are still in step.
            let counts = if layout == RANK_MAJOR { [[3, 1], [2, 3]] } else { [[3, 3], [3, 4]] };
            assert_eq!(ll.dispatch().counters, counts[comm.rank()]);
        });
    });
}

/// EP 4.4.1.
#[test]
fn combine_rows_are_whole_warps_of_loads() {
    every_rank(2, |comm| {
        let config =
            ncclEpGroupConfig_t { max_token_bytes: 65536, ..G2.config(LOW_LATENCY, LL_HIDDEN) };
        let ll =
            LowLatencyRank::on(TestGroup::new(comm, &config).into(), comm.rank(), G2, RANK_MAJOR);
        ll.dispatch();
        let combine = |hidden| ll.combine_call(&[1.0; 8], hidden).call(&ll.handle);
        assert_refused(combine(64), INVALID_ARGUMENT, FailureClass::Assert);
        assert_refused(combine(256), INTERNAL_ERROR, FailureClass::Return);
        assert_refused(combine(768), INTERNAL_ERROR, FailureClass::Return);
        assert_refused(combine(16384), INVALID_ARGUMENT, FailureClass::Return);
        // Every token gets 1 from each rank that it went to.
        let mut call = ll.combine_call(&[1.0; 8], 15872);
        assert_ok(call.call(&ll.handle));
        let sums = row_values(&call.out.unwrap().data, 15872);
        assert_eq!(sums, [[2., 2., 1., 0.], [1., 1., 1., 1.]][comm.rank()]);
    });
}

#[test]
fn zero_copy_on_needs_windows() {
    every_rank(2, |comm| {
        let zero_copy = ZERO_COPY_ON;
        let ht = HighThroughputRank::with(comm, G2, FLAT, 0, |c| c.zero_copy = zero_copy);
        let code = ht.dispatch_into(16).call(&ht.handle);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
        let code = ht.combine_of(&[0.0; 16]).call(&ht.handle);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
        let config = ncclEpGroupConfig_t { zero_copy, ..G2.config(LOW_LATENCY, LL_HIDDEN) };
        let group = Rc::new(TestGroup::new(comm, &config));
        for layout in [EXPERT_MAJOR, RANK_MAJOR] {
            let ll = LowLatencyRank::on(group.clone(), comm.rank(), G2, layout);
            let mut call = ll.dispatch_call(LL_HIDDEN);
            assert_refused(call.call(&ll.handle), INVALID_ARGUMENT, FailureClass::Return);
            call = call.with_output_window(comm);
            if layout == EXPERT_MAJOR {
                assert_refused(call.call(&ll.handle), INVALID_ARGUMENT, FailureClass::Return);
            } else {
                assert_ok(call.call(&ll.handle));
                assert_eq!(ll.received(call).counters, [[3, 1], [2, 3]][comm.rank()]);
            }
        }
    });
}
