//! EP 9.3, 7.1: expert-major modes that the environment chooses.

use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpOverflowPolicy_t};
use nccl_ext_cpu::{FailureClass, last_refusal};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

use super::with_environment;

/// Rank 0's token goes to experts 0, 1 (rank 0) and 2 (rank 1); a budget for the worst case.
const THREE: Fixture = Fixture {
    topk: 3,
    ids: |r| if r == 0 { vec![0, 1, 2] } else { vec![] },
    values: |r| if r == 0 { vec![1.0] } else { vec![] },
    max_recv: 24,
    ..G2
};

/// The values of the two flags while `body` runs.
fn with_flags<T>(nvlink: &str, local: &str, body: impl FnOnce() -> T) -> T {
    let flags = [("NCCL_EP_HT_EM_NVLINK_DUP", nvlink), ("NCCL_EP_HT_EM_LOCAL_DUP", local)];
    with_environment(&flags, body)
}

/// Rank 0's expert-major sum of 256 and 1 of rank 0 and 1 of rank 1.
fn sum_under(nvlink: &str, local: &str) -> Vec<f32> {
    let [now, later] = with_flags(nvlink, local, || {
        both_ways(2, |comm| {
            let ht = HighThroughputRank::new(comm, THREE, EXPERT_MAJOR);
            assert_eq!(ht.dispatch().rows[..2], [[1., 1.], [1., CANARY]][comm.rank()]);
            let sum = ht.combine([&[256., 1.][..], &[1.]][comm.rank()]);
            // FLAT handles of such a group do as ever: once for each rank.
            let sums = HighThroughputRank::new(comm, THREE, FLAT).round_trip();
            assert_eq!(sums, [&[2.][..], &[]][comm.rank()]);
            sum
        })
    });
    assert!(now[1].is_empty());
    assert_eq!(now, later);
    now[0].clone()
}

/// EP vector C16.
#[test]
fn nvlink_dup_rounds_once() {
    assert_eq!(sum_under("1", ""), [258.0]);
}

/// EP 7.1.
#[test]
fn flags_are_words_of_truth() {
    // 256 is the sum of the modes that round each rank's part.
    let rows = [
        ("local dup", ("", "1", 256.)),
        ("yes is none of them, True is", ("yes", "True", 256.)),
        ("zero and off", ("0", "off", 256.)),
    ];
    check_rows(rows, |(nvlink, local, sum)| assert_eq!(sum_under(nvlink, local), [sum]));
}

/// EP 7.1.
#[test]
fn both_flags_are_refused() {
    with_flags("1", "1", || {
        both_ways(2, |comm| {
            let config = THREE.config(HIGH_THROUGHPUT, HT_HIDDEN);
            let (code, group) = TestGroup::try_new(comm, &config);
            assert_refused(code, INVALID_USAGE, FailureClass::Return);
            assert!(!group.is_null());
        });
    });
}

/// EP 4.8.5.
#[test]
fn local_dup_leaves_its_sums_in_windows_and_ordinary_inputs_alone() {
    with_flags("", "1", || {
        both_ways(2, |comm| {
            let ht = HighThroughputRank::new(comm, THREE, EXPERT_MAJOR);
            let given: &[f32] = [&[5., 7.][..], &[13.]][comm.rank()];
            for in_window in [false, true] {
                let mut call = ht.combine_of(given);
                if in_window {
                    call = call.with_input_window(comm);
                }
                assert_ok(call.call(&ht.handle));
                let input = row_values(&call.tokens.unwrap().data, HT_HIDDEN);
                let sums = row_values(&call.out.unwrap().data, HT_HIDDEN);
                assert_eq!(sums, [&[25.][..], &[]][comm.rank()]);
                let left = if in_window { &[12., 7.][..] } else { given };
                assert_eq!(input, [left, given][comm.rank()], "in a window: {in_window}");
            }
        });
    });
}

/// EP 3.2 HT d.
#[test]
fn a_forced_mode_stages_the_worst_case_whatever_the_layout() {
    with_flags("1", "", || {
        both_ways(2, |comm| {
            let config = Fixture { max_recv: 23, ..THREE }.config(HIGH_THROUGHPUT, HT_HIDDEN);
            let group = TestGroup::new(comm, &config);
            for layout in [FLAT, EXPERT_MAJOR] {
                let class = FailureClass::Throw;
                group.assert_handle_refused((layout, 3, 0), INVALID_ARGUMENT, class);
            }
        });
    });
}

/// EP vector O13.
#[test]
fn nvlink_dup_drops_only_with_an_aligned_budget() {
    with_flags("1", "", || {
        both_ways(2, |comm| {
            let config = ncclEpGroupConfig_t {
                max_recv_tokens_per_rank: 26,
                overflow_policy: ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP,
                ..THREE.config(HIGH_THROUGHPUT, HT_HIDDEN)
            };
            let group = TestGroup::new(comm, &config);
            let class = FailureClass::UndefinedBehaviour;
            group.assert_handle_refused((EXPERT_MAJOR, 3, 4), INVALID_ARGUMENT, class);
            drop(group.handle(EXPERT_MAJOR, 3, 2));
        });
    });
}

/// Every rank checks every destination, and may be told by another first.
#[test]
fn a_destination_that_padding_overruns_traps_on_every_rank() {
    let all_to_0 = Fixture { ids: |_| vec![0; 4], topk: 1, values: |_| vec![1.0; 4], ..THREE };
    with_flags("1", "", || {
        every_rank(2, |comm| {
            let eight_rows = |config: &mut ncclEpGroupConfig_t| config.max_recv_tokens_per_rank = 8;
            let ht = HighThroughputRank::with(comm, all_to_0, EXPERT_MAJOR, 0, eight_rows);
            assert_eq!(ht.published.total, [8, 0][comm.rank()]);
            let padded = ht.group.handle(EXPERT_MAJOR, 1, 16);
            let code = update_handle(&padded, &mut all_to_0.ids(comm.rank()), None);
            assert!([INVALID_USAGE, REMOTE_ERROR].contains(&code), "{code:?}");
            assert_eq!(last_refusal(), Some(FailureClass::Trap));
            let detail = usage_detail(&take_error().unwrap());
            assert!(detail.contains("at most 8 rows on rank 0") && detail.contains("found 16"));
        });
    });
}
