//! EP 9.3: high throughput, expert-major.

use nccl_ext_core::Comm;
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;

fn aligned(comm: &Comm, fixture: Fixture, alignment: usize) -> HighThroughputRank {
    HighThroughputRank::with(comm, fixture, EXPERT_MAJOR, alignment, |_| ())
}

/// EP vector C1.
#[test]
fn a_zone_has_the_tokens_of_one_expert() {
    both_ways(4, |comm| {
        let ht = HighThroughputRank::new(comm, F4, EXPERT_MAJOR);
        assert_eq!(ht.published.total, 4);
        let zones = [[1., 9., 2., 10.], [3., 11., 4., 12.], [5., 13., 6., 14.], [7., 15., 8., 16.]];
        assert_eq!(ht.dispatch().rows[..4], zones[comm.rank()]);
    });
}

/// EP vector C2.
#[test]
fn aligned_zones_end_in_rows_of_zeros() {
    both_ways(4, |comm| {
        let rows = aligned(comm, F4, 4).dispatch().rows;
        let r = 2.0 * comm.rank() as f32;
        assert_eq!(rows[..8], [r + 1., r + 9., 0., 0., r + 2., r + 10., 0., 0.]);
        assert!(rows[8..].iter().all(|&x| x == CANARY));
    });
}

/// EP vector C3.
#[test]
fn counters_and_offsets_are_those_of_aligned_zones() {
    both_ways(4, |comm| {
        let published = aligned(comm, F4, 4).published;
        assert_eq!((published.counters, published.offsets), (vec![4, 4], vec![0, 4]));
    });
}

/// EP vector C4.
#[test]
fn the_total_counts_padding() {
    let totals = both_ways(4, |comm| aligned(comm, F4, 4).published.total);
    assert_eq!(totals, [[8; 4]; 2]);
}

/// EP vector C5.
#[test]
fn combine_gives_the_tokens_back_whatever_the_alignment() {
    check_rows([0, 1, 4, 8].map(|alignment| (alignment, alignment)), |alignment| {
        both_ways(4, |comm| {
            let sums = aligned(comm, F4, alignment).round_trip();
            assert_eq!(sums, (F4.values)(comm.rank()));
        });
    });
}

/// The zones of each rank in F4K2.
const F4K2_ZONES: [[[f32; 4]; 2]; 4] = [
    [[1., 5., 9., 13.]; 2],
    [[2., 6., 10., 14.]; 2],
    [[3., 7., 11., 15.], [4., 8., 12., 16.]],
    [[3., 7., 11., 15.], [4., 8., 12., 16.]],
];

/// EP vector C6.
#[test]
fn a_token_for_two_experts_of_a_rank_arrives_twice() {
    both_ways(4, |comm| {
        let ht = HighThroughputRank::new(comm, F4K2, EXPERT_MAJOR);
        assert_eq!(ht.published.total, 8);
        let [first, second] = F4K2_ZONES[comm.rank()];
        assert_eq!(ht.dispatch().rows[..8], [first, second].concat());
    });
}

/// EP vector C7.
#[test]
fn zones_of_two_experts_are_aligned_each() {
    both_ways(4, |comm| {
        let ht = aligned(comm, F4K2, 8);
        assert_eq!(ht.published.total, 16);
        assert_eq!(ht.published.counters, [8, 8]);
        assert_eq!(ht.published.offsets, [0, 8]);
        let received = ht.dispatch();
        let [first, second] = F4K2_ZONES[comm.rank()];
        assert_eq!(received.rows[..16], [first, [0.; 4], second, [0.; 4]].concat());
        assert_eq!(received.weights[..16], [[1.; 4], [0.; 4], [1.; 4], [0.; 4]].concat());
    });
}

/// Rows of both zones of a rank in G2.
pub(crate) const G2_ROWS: [[f32; 6]; 2] = [[1., 3., 7., 2., 3., 7.], [1., 5., 8., 2., 6., 8.]];

/// EP vector C8.
#[test]
fn g2_has_three_rows_in_each_zone() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, EXPERT_MAJOR);
        let published = PublishedCounters { counters: vec![3, 3], offsets: vec![0, 3], total: 6 };
        assert_eq!(ht.published, published);
        assert_eq!(ht.dispatch().rows[..6], G2_ROWS[comm.rank()]);
    });
}

/// EP vector C9.
#[test]
fn a_row_has_the_weight_of_its_expert() {
    both_ways(2, |comm| {
        let received = HighThroughputRank::new(comm, G2, EXPERT_MAJOR).dispatch();
        let weights = [[1., 3.25, 7., 2.25, 3., 7.25], [1.25, 5., 8., 2., 6., 8.25]];
        assert_eq!(received.weights[..6], weights[comm.rank()]);
        assert!(received.weights[6..].iter().all(|&x| x == CANARY));
        assert!(received.rows[6..].iter().all(|&x| x == CANARY));
    });
}

/// EP vector C10.
#[test]
fn padding_has_zeros_for_weights() {
    both_ways(2, |comm| {
        let ht = aligned(comm, G2, 4);
        let published = PublishedCounters { counters: vec![4, 4], offsets: vec![0, 4], total: 8 };
        assert_eq!(ht.published, published);
        let received = ht.dispatch();
        let [a, b, c, d, e, f] = G2_ROWS[comm.rank()];
        assert_eq!(received.rows[..8], [a, b, c, 0., d, e, f, 0.]);
        assert_eq!([received.weights[3], received.weights[7]], [0.0; 2]);
    });
}

/// EP vector C11.
#[test]
fn combine_sums_over_experts() {
    check_rows([0, 4].map(|alignment| (alignment, alignment)), |alignment| {
        both_ways(2, |comm| {
            let sums = aligned(comm, G2, alignment).round_trip();
            assert_eq!(sums, [[2., 4., 6., 0.], [5., 6., 14., 16.]][comm.rank()]);
        });
    });
}

/// EP vector C12.
#[test]
fn an_empty_expert_reserves_nothing() {
    // Rank 0's three experts receive 2, 0 and 1 tokens.
    let fixture = Fixture {
        experts: 12,
        ids: |r| [vec![0], vec![0], vec![2], vec![5]][r].clone(),
        values: |r| vec![r as f32 + 1.0],
        ..F4
    };
    both_ways(4, |comm| {
        let ht = aligned(comm, fixture, 4);
        if comm.rank() == 0 {
            let published =
                PublishedCounters { counters: vec![4, 0, 4], offsets: vec![0, 4, 4], total: 8 };
            assert_eq!(ht.published, published);
        }
        let rows = ht.dispatch().rows;
        if comm.rank() == 0 {
            assert_eq!(rows[..8], [1., 2., 0., 0., 3., 0., 0., 0.]);
        }
        assert_eq!(ht.combine(&rows), [comm.rank() as f32 + 1.0]);
    });
}

/// EP vector C13.
#[test]
fn an_id_output_is_refused_after_communication() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, EXPERT_MAJOR);
        let mut call = ht.dispatch_into(16);
        if comm.rank() == 0 {
            call.out_ids = Some(TestTensor::filled(&[16, 2], 0));
            assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, FailureClass::Return);
        } else {
            assert_ok(call.call(&ht.handle));
            assert_eq!(Received::of(call).rows[..6], G2_ROWS[1]);
        }
        assert_eq!(ht.dispatch().rows[..6], G2_ROWS[comm.rank()]);
    });
}

/// EP vector C14.
#[test]
fn an_alignment_of_3_is_refused() {
    both_ways(2, |comm| {
        let group = TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, HT_HIDDEN));
        let (code, handle) = group.try_handle(EXPERT_MAJOR, 2, 3);
        assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
        assert!(handle.is_null());
        // Only expert-major looks at it.
        drop(group.handle(FLAT, 2, 3));
    });
}
