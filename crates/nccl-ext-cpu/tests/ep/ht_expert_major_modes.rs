//! EP 4.8: expert-major combine in its modes, and their limits. Whether a mode was chosen by the
//! environment is the matter of `tests/ep_environment`.

use nccl_ep_sys::ncclEpGroupConfig_t;
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

/// Rank 0's token goes to experts 0, 1 (rank 0) and 2 (rank 1).
const THREE: Fixture = Fixture {
    topk: 3,
    ids: |r| if r == 0 { vec![0, 1, 2] } else { vec![] },
    values: |r| if r == 0 { vec![1.0] } else { vec![] },
    ..G2
};

/// What the experts give back: 256 and 1 on rank 0, 1 on rank 1.
fn three(rank: usize) -> Vec<f32> {
    if rank == 0 { vec![256., 1.] } else { vec![1.] }
}

/// What a combine left in its input, and its sums.
#[track_caller]
fn combined(ht: &HighThroughputRank, mut call: CombineCall) -> (Vec<f32>, Vec<f32>) {
    assert_ok(call.call(&ht.handle));
    let [input, sums] = [call.tokens, call.out].map(|t| row_values(&t.unwrap().data, HT_HIDDEN));
    (input, sums)
}

/// Only rank 0 has a token.
fn of_rank_0(rank: usize, sum: f32) -> Vec<f32> {
    if rank == 0 { vec![sum] } else { vec![] }
}

/// EP vector C15.
#[test]
fn local_permute_rounds_each_ranks_part() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, THREE, EXPERT_MAJOR);
        ht.dispatch();
        let given = three(comm.rank());
        // Nothing is left in the input.
        let expected = (given.clone(), of_rank_0(comm.rank(), 256.));
        assert_eq!(combined(&ht, ht.combine_of(&given)), expected);
    });
}

/// EP 4.8.5.
#[test]
fn local_permute_leaves_its_input_alone_even_in_a_window() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, THREE, EXPERT_MAJOR);
        let given = [&[5., 7.][..], &[13.]][comm.rank()];
        let expected = (given.to_vec(), of_rank_0(comm.rank(), 25.));
        let call = ht.combine_of(given).with_input_window(comm);
        assert_eq!(combined(&ht, call), expected);
    });
}

/// EP 4.8.3.
#[test]
fn the_part_of_a_rank_is_summed_in_fp32() {
    // 256 + 1 + 1 on one rank is 258: only the sum is rounded.
    let fixture = Fixture { experts: 8, ..THREE };
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, fixture, EXPERT_MAJOR);
        assert_eq!(ht.combine(&[256., 1., 1.]), of_rank_0(comm.rank(), 258.));
    });
}

/// The mode of groups whose ranks share memory and whose outputs are windows.
fn local_dup(config: &mut ncclEpGroupConfig_t) {
    config.zero_copy = ZERO_COPY_ON;
}

/// EP vector C17.
#[test]
fn local_dup_leaves_sums_in_a_window() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::with(comm, THREE, EXPERT_MAJOR, 0, local_dup);
        let received = ht.receive(ht.dispatch_into(16).with_output_window(comm));
        assert_eq!(received.rows[..2], [[1., 1.], [1., CANARY]][comm.rank()]);
        let call = ht.combine_of(&three(comm.rank())).with_input_window(comm);
        // 257 is rounded to 256.
        let expected = (three(comm.rank()), of_rank_0(comm.rank(), 256.));
        assert_eq!(combined(&ht, call), expected);
    });
}

/// EP 4.8.5.
#[test]
fn only_the_first_of_several_local_rows_changes() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::with(comm, THREE, EXPERT_MAJOR, 0, local_dup);
        let given = [&[5., 7., 11.][..], &[13., 17.]][comm.rank()];
        let left = [&[12., 7., 11.][..], given][comm.rank()];
        let call = ht.combine_of(given).with_input_window(comm);
        assert_eq!(combined(&ht, call), (left.to_vec(), of_rank_0(comm.rank(), 25.)));
    });
}

/// EP 4.8.1.
#[test]
fn local_dup_sums_at_most_eight_experts_of_a_token_on_a_rank() {
    let fixture = |topk, ids| Fixture { experts: 32, topk, ids, ..THREE };
    let rows = [
        ("eight", (fixture(8, |r| if r == 0 { (0..8).collect() } else { vec![] }), true)),
        ("nine", (fixture(9, |r| if r == 0 { (0..9).collect() } else { vec![] }), false)),
    ];
    check_rows(rows, |(fixture, fits)| {
        every_rank(2, |comm| {
            let ht = HighThroughputRank::with(comm, fixture, EXPERT_MAJOR, 0, local_dup);
            let mut call = ht.combine_of(&[1.0; 9]).with_input_window(comm);
            let code = call.call(&ht.handle);
            if fits {
                assert_ok(code);
                let sums = row_values(&call.out.unwrap().data, HT_HIDDEN);
                assert_eq!(sums, [&[8.0][..], &[]][comm.rank()]);
            } else {
                assert_refused(code, INVALID_ARGUMENT, FailureClass::Trap);
            }
        });
    });
}

/// EP 8.
#[test]
fn expert_major_combine_has_at_most_32_experts_a_token() {
    // Rank 0 gives a row for each expert back in expert-major, each rank one in FLAT.
    let rows = [
        ("32", (many(32, |r| first_experts(r, 32)), EXPERT_MAJOR, Some(32.))),
        ("33", (many(33, |r| first_experts(r, 33)), EXPERT_MAJOR, None)),
        ("40, FLAT", (many(40, |r| first_experts(r, 40)), FLAT, Some(2.))),
    ];
    check_rows(rows, |(fixture, layout, sum)| {
        both_ways(2, |comm| {
            let ht = HighThroughputRank::new(comm, fixture, layout);
            let mut call = ht.combine_of(&[1.0; 64]);
            let code = call.call(&ht.handle);
            let Some(sum) = sum else {
                return assert_refused(code, INVALID_ARGUMENT, FailureClass::JitAbort);
            };
            assert_ok(code);
            let sums = row_values(&call.out.unwrap().data, HT_HIDDEN);
            assert_eq!(sums, [&[sum][..], &[]][comm.rank()]);
        });
    });
}

/// Rank 0's token names as many experts; rank 0 has the first 32 of 64.
fn many(topk: usize, ids: fn(usize) -> Vec<i64>) -> Fixture {
    Fixture { experts: 64, topk, max_recv: 64, ids, ..THREE }
}

fn first_experts(rank: usize, experts: i64) -> Vec<i64> {
    if rank == 0 { (0..experts).collect() } else { vec![] }
}

/// EP 8.
#[test]
fn dup_modes_need_a_power_of_two_of_local_experts() {
    let fixture = Fixture { experts: 12, ..G2 };
    both_ways(2, |comm| {
        let mut ht = HighThroughputRank::fresh(comm, fixture, EXPERT_MAJOR, 0, local_dup);
        let code = ht.update(&mut fixture.ids(comm.rank()));
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
        // FLAT does not, nor does the mode that permutes. Rank 0 has all experts of G2's tokens.
        let flat = HighThroughputRank::with(comm, fixture, FLAT, 0, local_dup);
        assert_eq!(flat.published.total, [7, 0][comm.rank()]);
        let permute = HighThroughputRank::new(comm, fixture, EXPERT_MAJOR);
        assert_eq!(permute.published.total, [12, 0][comm.rank()]);
    });
}

/// EP 4.8.1.
#[test]
fn too_few_rows_for_a_combine_are_refused() {
    every_rank(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, EXPERT_MAJOR);
        assert_refused(
            ht.combine_of(&[0.0; 5]).call(&ht.handle),
            INVALID_ARGUMENT,
            FailureClass::Trap,
        );
    });
}
