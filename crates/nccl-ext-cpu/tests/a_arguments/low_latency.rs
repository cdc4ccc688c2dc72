//! Low-latency dispatch and combine: A20 and the checks of their tensors.

use nccl_ext_core::bf16;

use super::*;

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
