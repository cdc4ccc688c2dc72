//! Updates, completions (A22) and handles that are null.

use nccl_ext_core::bf16;

use super::*;

#[test]
fn a22_complete_with_nothing_pending() {
    ranks(2, |comm| {
        ok(raw::complete(Ht::new(comm, G2, FLAT).handle.raw, null()));
        ok(raw::complete(Ll::new(comm, G2, EM).handle.raw, null()));
        let ht = Ht::new(comm, G2, FLAT);
        let config = ncclEpCompleteConfig_t { size: 7, ..VersionedStruct::init() };
        let code = raw::complete(ht.handle.raw, &config);
        refused(code, ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn null_handles_are_arguments() {
    let mut ids = ids(1, &[0]);
    let code = raw::update(null_mut(), ids.d());
    refused(code, ARGUMENT, FailureClass::Assert);
    let (inputs, outputs) = (ncclEpDispatchInputs_t::init(), ncclEpDispatchOutputs_t::init());
    let dispatch = |i, o| raw::dispatch(null_mut(), i, o, null());
    refused(dispatch(&inputs, &outputs), ARGUMENT, FailureClass::UndefinedBehaviour);
    refused(dispatch(null(), &outputs), ARGUMENT, FailureClass::Return);
    refused(dispatch(&inputs, null()), ARGUMENT, FailureClass::Return);
    let (inputs, outputs) = (ncclEpCombineInputs_t::init(), ncclEpCombineOutputs_t::init());
    let code = raw::combine(null_mut(), &inputs, &outputs);
    refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
    let code = raw::complete(null_mut(), null());
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
        let code = raw::update(ht.handle.raw, unbound);
        refused(code, ARGUMENT, Assert);
        let code = raw::update(ht.handle.raw, null());
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
