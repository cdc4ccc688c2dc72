//! Updates, completions and handles that are null.

use nccl_ext_core::bf16;

use super::*;

/// EP vector A22.
#[test]
fn complete_with_nothing_pending_succeeds() {
    every_rank(2, |comm| {
        assert_ok(raw_calls::complete(HighThroughputRank::new(comm, G2, FLAT).handle.raw, null()));
        assert_ok(raw_calls::complete(
            LowLatencyRank::new(comm, G2, EXPERT_MAJOR).handle.raw,
            null(),
        ));
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        let config = ncclEpCompleteConfig_t { size: 7, ..VersionedStruct::init() };
        let code = raw_calls::complete(ht.handle.raw, &config);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Return);
    });
}

/// EP 1.4.
#[test]
fn null_handles_are_refused() {
    let mut ids = int64_ids(1, &[0]);
    let code = raw_calls::update(null_mut(), ids.descriptor());
    assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
    let (inputs, outputs) = (ncclEpDispatchInputs_t::init(), ncclEpDispatchOutputs_t::init());
    let dispatch = |i, o| raw_calls::dispatch(null_mut(), i, o, null());
    assert_refused(dispatch(&inputs, &outputs), INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
    assert_refused(dispatch(null(), &outputs), INVALID_ARGUMENT, FailureClass::Return);
    assert_refused(dispatch(&inputs, null()), INVALID_ARGUMENT, FailureClass::Return);
    let (inputs, outputs) = (ncclEpCombineInputs_t::init(), ncclEpCombineOutputs_t::init());
    let code = raw_calls::combine(null_mut(), &inputs, &outputs);
    assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
    let code = raw_calls::complete(null_mut(), null());
    assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
}

/// EP 3.5.
#[test]
fn updates_check_the_descriptor_of_the_ids() {
    use FailureClass::{Assert, UndefinedBehaviour};
    let filled = |sizes: &[usize]| TestTensor::filled(sizes, 0_i64);
    let broken = |change: fn(&mut ncclEpTensor_t)| {
        let mut ids = int64_ids(1, &[0]);
        change(ids.raw_mut());
        ids
    };
    every_rank(1, |comm| {
        let ht = HighThroughputRank::fresh(comm, ONE, FLAT, 0, |_| ());
        let rows = [
            ("one extent", (filled(&[4]), Assert)),
            ("two ids a token", (filled(&[4, 2]), Assert)),
            ("five tokens", (filled(&[5, 1]), Assert)),
            ("an expert that is not there", (int64_ids(1, &[7, 8]), UndefinedBehaviour)),
            ("a short descriptor", (broken(|raw| raw.size = 47), Assert)),
            ("the magic of others", (broken(|raw| raw.magic = NCCL_EP_MAGIC), Assert)),
        ];
        check_rows(rows, |(mut ids, class)| {
            assert_refused(update_handle(&ht.handle, &mut ids, None), INVALID_ARGUMENT, class);
        });
        let mut floats = TestTensor::filled(&[4, 1], 0.0_f32);
        assert_refused(update_handle(&ht.handle, &mut floats, None), INVALID_ARGUMENT, Assert);
        let mut unbound = int64_ids(1, &[0]);
        let unbound = unbound.raw_mut();
        unbound.data = null_mut();
        for ids in [&raw const *unbound, null()] {
            assert_refused(raw_calls::update(ht.handle.raw, ids), INVALID_ARGUMENT, Assert);
        }
        // Nothing of that was an update.
        let mut call = ht.dispatch_into(32);
        call.tokens = Some(TestTensor::filled(&[4, HT_HIDDEN], bf16::ZERO));
        assert_refused(call.call(&ht.handle), INVALID_USAGE, FailureClass::Trap);
    });
}

#[test]
fn counters_are_checked_after_the_update_took_place() {
    use FailureClass::Assert;
    every_rank(1, |comm| {
        let ht = HighThroughputRank::fresh(comm, ONE, FLAT, 0, |_| ());
        let mut wide = TestTensor::filled(&[8], 0_i64);
        let mut short = TestTensor::filled(&[7], 0_i32);
        let mut info = ncclEpLayoutInfo_t::init();
        for tensor in [wide.descriptor(), short.descriptor()] {
            info.expert_counters = tensor;
            let code = update_handle(&ht.handle, &mut ONE.ids(0), Some(&info));
            assert_refused(code, INVALID_ARGUMENT, Assert);
            assert_eq!(ht.dispatch().rows[..4], [1., 2., 3., 4.]);
        }
        let em = HighThroughputRank::fresh(comm, ONE, EXPERT_MAJOR, 0, |_| ());
        let mut narrow = TestTensor::filled(&[8], 0_i32);
        info.expert_counters = wide.descriptor();
        info.expert_offsets = narrow.descriptor();
        let code = update_handle(&em.handle, &mut ONE.ids(0), Some(&info));
        assert_refused(code, INVALID_ARGUMENT, Assert);
        // All of one type, whichever.
        info.expert_counters = null_mut();
        assert_ok(update_handle(&em.handle, &mut ONE.ids(0), Some(&info)));
        assert_eq!(narrow.data, [0, 1, 2, 3, 4, 4, 4, 4]);
    });
}

/// EP 4.16. Low latency has a lowest one, below.
#[test]
fn any_negative_id_is_none_in_high_throughput() {
    every_rank(1, |comm| {
        let ht = HighThroughputRank::fresh(comm, ONE, FLAT, 0, |_| ());
        let (mut total, mut info) = (TestTensor::filled(&[1], -1_i32), ncclEpLayoutInfo_t::init());
        info.recv_total_counter = total.descriptor();
        let mut ids = int64_ids(1, &[-2, 7, i64::MIN, -65_535]);
        assert_ok(update_handle(&ht.handle, &mut ids, Some(&info)));
        assert_eq!(total.data, [1]);
    });
}

#[test]
fn low_latency_updates_take_no_layout_info_and_check_ids() {
    every_rank(2, |comm| {
        let ll = LowLatencyRank::new(comm, G2, EXPERT_MAJOR);
        let info = ncclEpLayoutInfo_t::init();
        let code = update_handle(&ll.handle, &mut G2.ids(0), Some(&info));
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
        let lowest = 4 - 65536;
        let mut fine = int64_ids(2, &[lowest, 3]);
        assert_ok(update_handle(&ll.handle, &mut fine, None));
        for wrong in [lowest - 1, 4] {
            let code = update_handle(&ll.handle, &mut int64_ids(2, &[0, wrong]), None);
            assert_refused(code, INVALID_ARGUMENT, FailureClass::UndefinedBehaviour);
        }
        // More tokens than a rank dispatches are noticed at dispatch.
        let mut many = TestTensor::filled(&[5, 2], 0_i64);
        assert_ok(update_handle(&ll.handle, &mut many, None));
        let mut call = ll.dispatch_call(LL_HIDDEN);
        call.tokens = Some(TestTensor::filled(&[5, LL_HIDDEN], bf16::ZERO));
        assert_refused(call.call(&ll.handle), INVALID_ARGUMENT, FailureClass::Assert);
    });
}
