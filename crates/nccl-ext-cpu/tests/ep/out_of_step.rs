//! Ranks whose peers fail, or do something else than they.

use nccl_ext_core::raw::ncclResult_t;
use nccl_ext_core::{Comm, Error, Reduction, Result, Stream};
use nccl_ext_cpu::run_ranks;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;
use nccl_ext_test::worlds::error_of;

/// The error of a call that met another: of the rank that came second, or of its peer.
#[track_caller]
fn error_behind(code: ncclResult_t) -> Error {
    assert!([INVALID_USAGE, REMOTE_ERROR].contains(&code), "{code:?}");
    take_error().unwrap()
}

/// Every rank hears all of these words.
#[track_caller]
fn assert_all_hear(words: &[&str], body: impl Fn(Comm) -> Result<()> + Sync) {
    for result in run_ranks(2, &patient(), body) {
        let detail = usage_detail(error_of(&result));
        assert!(words.iter().all(|word| detail.contains(word)), "{detail}");
    }
}

#[test]
fn dispatch_meets_combine() {
    check_rows(HIGH_THROUGHPUT_LAYOUTS, |layout| {
        assert_all_hear(&["ncclEpDispatch", "ncclEpCombine"], |comm| {
            let ht = HighThroughputRank::new(&comm, G2, layout);
            Err(error_behind(match comm.rank() {
                0 => ht.dispatch_into(16).call(&ht.handle),
                _ => ht.combine_of(&[0.0; 16]).call(&ht.handle),
            }))
        });
    });
}

#[test]
fn low_latency_meets_a_collective() {
    assert_all_hear(&["ncclEpDispatch", "ncclAllReduce"], |comm| {
        let ll = LowLatencyRank::new(&comm, G2, EXPERT_MAJOR);
        let result = if comm.rank() == 0 {
            Err(error_behind(ll.dispatch_call(LL_HIDDEN).call(&ll.handle)))
        } else {
            comm.all_reduce(&[1_i32], &mut [0], Reduction::Sum, Stream::DEFAULT)
        };
        // The group cannot be destroyed any more: its peers are out of step.
        let LowLatencyRank { handle, group, .. } = ll;
        drop(handle);
        std::mem::forget(group);
        result
    });
}

#[test]
fn handles_of_other_updates_do_not_meet() {
    // Rank 0 dispatches the first of two handles, rank 1 the second: their maps differ.
    assert_all_hear(&["update"], |comm| {
        let first = HighThroughputRank::new(&comm, G2, FLAT);
        let second = first.group.handle(FLAT, 2, 0);
        let mut ids = TestTensor::filled(&[4, 2], 0_i64);
        assert_ok(update_handle(&second, &mut ids, None));
        let handle = if comm.rank() == 0 { &first.handle } else { &second };
        Err(error_behind(first.dispatch_into(16).call(handle)))
    });
}

#[test]
fn a_staged_send_hears_of_a_failed_peer() {
    let results = run_ranks(2, &patient(), |comm| {
        let ll = LowLatencyRank::new(&comm, G2, EXPERT_MAJOR);
        if comm.rank() == 1 {
            comm.fail(&Error::RankGone { reason: "no dispatch".into() });
        } else {
            let mut call = ll.dispatch_call(LL_HIDDEN).staged();
            // Sending waits for nobody, but may already know.
            let mut code = call.call(&ll.handle);
            if code == SUCCESS {
                code = complete(&ll.handle);
            }
            assert_eq!(code, REMOTE_ERROR);
            let error = take_error().unwrap().to_string();
            assert_eq!(error, "rank 1 failed: no dispatch");
        }
        // A group of a failed world is left as it is.
        let LowLatencyRank { handle, group, .. } = ll;
        drop(handle);
        // SAFETY: the group is live, and a refusal leaves it so.
        let code = unsafe { (api().ncclEpGroupDestroy)(group.raw) };
        assert_eq!(code, REMOTE_ERROR);
        std::mem::forget(group);
        Ok::<_, Error>(())
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}
