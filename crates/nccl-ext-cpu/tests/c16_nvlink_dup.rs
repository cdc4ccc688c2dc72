//! EP vector C16 and the environment flags of EP 7.1. They are read at group creation, so this
//! binary has one test, which sets them before any rank runs.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use nccl_ep_sys::ncclEpGroupConfig_t;
use nccl_ext_core::Comm;
use nccl_ext_cpu::FailureClass;

/// Rank 0's token goes to experts 0, 1 (rank 0) and 2 (rank 1); a budget for the worst case.
const THREE: Fixture = Fixture {
    topk: 3,
    ids: |r| if r == 0 { vec![0, 1, 2] } else { vec![] },
    values: |r| if r == 0 { vec![1.0] } else { vec![] },
    max_recv: 24,
    ..G2
};

fn sum(comm: &Comm) -> Vec<f32> {
    let ht = Ht::new(comm, THREE, EM);
    ht.dispatch();
    let given: &[f32] = if comm.rank() == 0 { &[256., 1.] } else { &[1.] };
    let sum = ht.combine(given);
    // FLAT handles of such a group do as ever.
    let ht = Ht::new(comm, THREE, FLAT);
    let rows = ht.dispatch().rows;
    assert_eq!(
        ht.combine(&rows),
        (THREE.values)(comm.rank()).iter().map(|x| 2. * x).collect::<Vec<_>>()
    );
    sum
}

/// The values of the two flags while `body` runs.
fn with_flags<T>(nvlink: &str, local: &str, body: impl FnOnce() -> T) -> T {
    // SAFETY: no other thread runs: this is the only test, and ranks end before their world does.
    unsafe {
        std::env::set_var("NCCL_EP_HT_EM_NVLINK_DUP", nvlink);
        std::env::set_var("NCCL_EP_HT_EM_LOCAL_DUP", local);
    }
    body()
}

fn dropping(config: &mut ncclEpGroupConfig_t) {
    config.max_recv_tokens_per_rank = 26;
    config.overflow_policy = nccl_ep_sys::ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;
}

#[test]
fn c16_nvlink_dup_rounds_once() {
    let sums = with_flags("1", "", || ranks(2, sum));
    assert_eq!(sums[0], [258.0]);
    let sums = with_flags("yes", "True", || ranks(2, sum));
    assert_eq!(sums[0], [256.0]);
    let sums = with_flags("0", "off", || ranks(2, sum));
    assert_eq!(sums[0], [256.0]);

    with_flags("1", "1", || {
        ranks(2, |comm| {
            let mut group = std::ptr::null_mut();
            let create = api().ncclEpCreateGroup;
            let config = THREE.config(HT, H);
            // SAFETY: the communicator is live; `group` and the config are this frame's.
            let code = unsafe { create(&mut group, comm.as_raw(), &config) };
            refused(code, USAGE, FailureClass::Return);
            assert!(!group.is_null());
        });
    });

    // Local duplication leaves its sums in windows, and ordinary inputs alone (EP 4.8.5).
    with_flags("", "1", || {
        ranks(2, |comm| {
            let ht = Ht::new(comm, THREE, EM);
            let given: &[f32] = if comm.rank() == 0 { &[5., 7.] } else { &[13.] };
            for in_window in [false, true] {
                let mut call = ht.combine_of(given);
                if in_window {
                    call.tokens = call.tokens.map(|tensor| window(comm, tensor));
                }
                ok(call.call(&ht.handle));
                let input = values(&call.tokens.unwrap().data, H);
                if comm.rank() == 0 {
                    assert_eq!(values(&call.out.unwrap().data, H), [25.0]);
                    assert_eq!(input, if in_window { [12., 7.] } else { [5., 7.] });
                } else {
                    assert_eq!(input, given);
                }
            }
        });
    });

    // A forced mode stages the worst case, whatever the layout of the handle (EP 3.2 HT d).
    with_flags("1", "", || {
        ranks(2, |comm| {
            let config = Fixture { max_recv: 23, ..THREE }.config(HT, H);
            let group = Group::new(comm, &config);
            for layout in [FLAT, EM] {
                let (code, handle) = group.init(layout, 3, 0);
                refused(code, ARGUMENT, FailureClass::Throw);
                // SAFETY: the handle is the refused call's, and this is its only use.
                ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
            }
        });
        // EP vector O13.
        ranks(2, |comm| {
            let mut config = THREE.config(HT, H);
            dropping(&mut config);
            let group = Group::new(comm, &config);
            let (code, handle) = group.init(EM, 3, 4);
            refused(code, ARGUMENT, FailureClass::UndefinedBehaviour);
            // SAFETY: the handle is the refused call's, and this is its only use.
            ok(unsafe { (api().ncclEpHandleDestroy)(handle) });
            drop(group.handle(EM, 3, 2));
        });
    });

    // Every rank checks every destination, and all trap.
    let many = Fixture { ids: |_| vec![0; 5], topk: 1, values: |_| vec![1.0; 4], ..THREE };
    with_flags("1", "", || {
        let results = nccl_ext_cpu::run_ranks(2, &nccl_ext_cpu::CpuConfig::new(), |comm| {
            let mut ht = Ht::fresh(&comm, many, EM, 0, |c| c.max_recv_tokens_per_rank = 8);
            let code = ht.update(&mut Ten::filled(&[4, 1], 0_i64));
            assert_eq!(code, OK);
            // Padding counts.
            let group = &ht.group;
            let handle = group.handle(EM, 1, 16);
            assert_ne!(
                update_with(&handle, &mut Ten::filled(&[4, 1], 0_i64), std::ptr::null()),
                OK
            );
            assert_eq!(nccl_ext_cpu::last_refusal(), Some(FailureClass::Trap));
            Ok::<_, nccl_ext_core::Error>(())
        });
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    });
}
