//! A mask is as ids left out: random routings.

use std::rc::Rc;

use nccl_ext_test::cpu::ep::masks::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use proptest::prelude::*;

/// Three ranks, four tokens each, three experts a token.
const TRIO: Fixture = Fixture {
    ranks: 3,
    experts: 6,
    max_tokens: 4,
    topk: 3,
    ids: |_| vec![-1; 12],
    values: |r| (1..=4).map(|i| (4 * r + i) as f32).collect(),
    weight: |v, k| v + k as f32 / 4.0,
    max_recv: 12,
};

/// Different experts, or none, for each token of each rank.
fn routing() -> impl Strategy<Value = Vec<Vec<i64>>> {
    let token = prop::sample::subsequence(vec![0, 1, 2, 3, 4, 5, -1, -1, -1], 3).prop_shuffle();
    let rank = prop::collection::vec(token, 4).prop_map(|tokens| tokens.concat());
    prop::collection::vec(rank, 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Masks that agree do what leaving out the ids of masked ranks does.
    #[test]
    fn a_mask_is_as_ids_left_out(
        routing in routing(),
        pairs in prop::collection::vec(0..2_i32, 6),
        rank_major in any::<bool>(),
    ) {
        // Symmetric: three pairs, whose ranks sum up to 1, 2 and 3, and the diagonal.
        let active = |a: usize, b: usize| pairs[if a == b { 3 + a } else { a + b - 1 }];
        both_ways(3, |comm| {
            let me = comm.rank();
            let layout = if rank_major { RANK_MAJOR } else { EXPERT_MAJOR };
            let step = |group: Rc<TestGroup>, ids: TestTensor<i64>| {
                let handle = group.handle(layout, 3, 0);
                let mut ll = LowLatencyRank { fixture: TRIO, rank: me, handle, group, ids };
                assert_ok(update_handle(&ll.handle, &mut ll.ids, None));
                let received = ll.dispatch();
                let sums = ll.combine(&received.rows);
                (received, sums)
            };
            let group = masked_group(comm, TRIO, LONG_TIMEOUT);
            let mask: Vec<_> = (0..3).map(|rank| active(me, rank)).collect();
            group.set_mask(&mask);
            let found = step(group.clone(), int64_ids(3, &routing[me]));
            group.assert_mask(&mask, 0);
            let kept = routing[me].iter().map(|&id| match id {
                0.. if mask[id as usize / 2] == 0 => -1,
                id => id,
            });
            let plain = TestGroup::new(comm, &TRIO.config(LOW_LATENCY, LL_HIDDEN));
            let expected = step(plain.into(), int64_ids(3, &kept.collect::<Vec<_>>()));
            assert_eq!(found, expected);
        });
    }
}
