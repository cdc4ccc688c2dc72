use super::*;
use crate::routing::tests::g2;

/// The first element of each row; all elements of a G2 row are equal.
fn values(combined: &[bf16], hidden: usize) -> Vec<f32> {
    let rows = combined.chunks_exact(hidden);
    rows.map(|row| {
        assert!(row.iter().all(|value| value == &row[0]));
        row[0].to_f32()
    })
    .collect()
}

/// EP vector L3.
#[test]
fn ll_expert_major_gives_vector_l3() {
    let combined = ll_expert_major(&g2(512), |value, _, _| value);
    assert_eq!(values(&combined, 512), [2.25, 8.5, 18.75, 0.0, 25.0, 73.5, 100.0, 130.0]);
}

/// EP vector L9: received rows come back as they are.
#[test]
fn ll_rank_major_gives_vector_l9() {
    let combined = ll_rank_major(&g2(512), |value, _, _| value);
    assert_eq!(values(&combined, 512), [2.0, 4.0, 3.0, 0.0, 5.0, 6.0, 7.0, 8.0]);
}

/// EP vector B13: received rows come back as they are.
#[test]
fn ht_flat_gives_vector_b13() {
    let combined = ht_flat(&g2(16), |value, _, _| value);
    assert_eq!(values(&combined, 16), [2.0, 4.0, 3.0, 0.0, 5.0, 6.0, 7.0, 8.0]);
}

/// EP vector C11: received rows come back as they are.
#[test]
fn ht_expert_major_gives_vector_c11() {
    let combined = ht_expert_major(&g2(16), |value, _, _| value);
    assert_eq!(values(&combined, 16), [2.0, 4.0, 6.0, 0.0, 5.0, 6.0, 14.0, 16.0]);
}

/// EP vectors L1, L4, B7, B12 and C8.
#[test]
fn counts_of_g2() {
    let counts = |rows: [usize; 2], counters: [[i64; 2]; 2]| Counts {
        rows: rows.to_vec(),
        counters: counters.map(|rank| rank.to_vec()).to_vec(),
    };
    assert_eq!(by_expert(&g2(1)), counts([6, 7], [[3, 3], [3, 4]]));
    assert_eq!(by_source(&g2(1)), counts([4, 5], [[3, 1], [2, 3]]));
    assert_eq!(by_rank(&g2(1)), counts([4, 5], [[3, 3], [3, 3]]));
}

/// EP vectors L1, L4, B7 and C8, in the order of tokens.
#[test]
fn arrivals_of_g2() {
    let routing = g2(1);
    let tokens = |zones: Zones| -> Vec<Vec<usize>> {
        zones.iter().map(|zone| zone.iter().map(|arrival| arrival.token).collect()).collect()
    };
    assert_eq!(tokens(ll_expert_arrivals(&routing, 0)), [vec![0, 2, 6], vec![1, 2, 6]]);
    assert_eq!(tokens(ll_expert_arrivals(&routing, 1)), [vec![0, 4, 7], vec![1, 5, 5, 7]]);
    assert_eq!(tokens(ll_source_arrivals(&routing, 0)), [vec![0, 1, 2], vec![6]]);
    assert_eq!(tokens(ll_source_arrivals(&routing, 1)), [vec![0, 1], vec![4, 5, 7]]);
    assert_eq!(tokens(ht_rank_arrivals(&routing, 0)), [[0, 1, 2, 6]]);
    assert_eq!(tokens(ht_rank_arrivals(&routing, 1)), [[0, 1, 4, 5, 7]]);
    assert_eq!(tokens(ht_expert_arrivals(&routing, 1)), [[0, 4, 7], [1, 5, 7]]);

    let arrival = |token, weights: &[f32], ids: &[i64]| Arrival {
        token,
        weights: weights.to_vec(),
        ids: ids.to_vec(),
    };
    // Token 1 goes to experts 3 and 1, token 2 to 1 and 0.
    assert_eq!(ll_source_arrivals(&routing, 0)[0][1], arrival(1, &[2.0, 2.25], &[-1, 1]));
    assert_eq!(ll_source_arrivals(&routing, 1)[0][1], arrival(1, &[2.0, 2.25], &[1, -1]));
    assert_eq!(ht_rank_arrivals(&routing, 0)[0][1], arrival(1, &[2.25, 0.0], &[1, -1]));
    assert_eq!(ht_rank_arrivals(&routing, 0)[0][2], arrival(2, &[3.25, 3.0], &[0, 1]));
    assert_eq!(ht_expert_arrivals(&routing, 0)[0][1], arrival(2, &[3.25], &[]));
}

/// Counted once by another program.
#[test]
fn counts_of_the_recording() {
    let routing = Routing::recorded().unwrap();
    assert_eq!(by_expert(&routing).rows, [1027, 889, 1260, 920]);
    assert_eq!(by_rank(&routing).rows, [460, 438, 483, 460]);
    assert_eq!(by_source(&routing).rows, by_rank(&routing).rows);
}

/// EP vectors B17, B18, B20, C15 and C16: where rounding happens and where it does not.
#[test]
fn sums_round_once_and_expert_major_once_more_a_rank() {
    let mut routing = g2(1);
    routing.topk_idx = [0, 1].repeat(8);
    let row = |expert: usize| [256.0, 1.0, 1.0, 1.0][expert];
    // Both experts on rank 0, whose sum of 257 is a tie: even wins.
    let combined = ht_expert_major(&routing, |_, (expert, _), _| row(expert));
    assert_eq!(combined[0].to_f32(), 256.0);
    routing.topk_idx = [2, 1].repeat(8);
    let combined = ht_flat(&routing, |_, experts, _| row(experts[0].0 - 1));
    assert_eq!(combined[0].to_f32(), 256.0);
    routing.sizes.ranks = 4;
    routing.sizes.tokens_per_rank = 2;
    routing.sizes.top_k = 4;
    routing.topk_idx = [3, 2, 1, -1].repeat(8);
    routing.topk_weights = vec![1.0; 32];
    // Ranks 1, 2, 3 give 256, 1, 1: one rounding in all.
    let combined = ht_flat(&routing, |_, experts, _| row(experts[0].0 - 1));
    assert_eq!(combined[0].to_f32(), 258.0);
    // 256 and 1 on rank 0, 1 on rank 1.
    let row = |expert: usize| [256.0, 1.0, 1.0][expert];
    routing.sizes.ranks = 2;
    routing.topk_idx = [0, 1, 2, -1].repeat(8);
    let combined = ht_expert_major(&routing, |_, (expert, _), _| row(expert));
    assert_eq!(combined[0].to_f32(), 256.0);
    let combined = ht_expert_major_once(&routing, |_, (expert, _), _| row(expert));
    assert_eq!(combined[0].to_f32(), 258.0);
    let combined = ht_flat(&routing, |_, _, _| -0.0);
    assert_eq!(combined[0].to_bits(), 0);
}

/// A multiply-add in one step returns the rounding error of the product (EP 4.4.3).
#[test]
fn ll_expert_major_multiplies_and_adds_in_one_rounding() {
    let mut routing = g2(1);
    let (value, weight) = (1.007_812_5_f32, 1.000_000_1_f32);
    let product = value * weight;
    let error = (f64::from(value) * f64::from(weight) - f64::from(product)) as f32;
    assert_ne!(error, 0.0);
    routing.topk_idx = [0, 1].repeat(8);
    routing.topk_weights = [product, weight].repeat(8);
    let combined = ll_expert_major(&routing, |_, expert, _| if expert == 0 { -1.0 } else { value });
    assert_eq!(combined[0], rounded(error));
}

#[test]
fn rounding_ties_go_to_even_and_nan_has_one_pattern() {
    assert_eq!(rounded(257.0).to_f32(), 256.0);
    assert_eq!(rounded(259.0).to_f32(), 260.0);
    assert_eq!(rounded(f32::MAX).to_bits(), 0x7F80);
    assert_eq!(rounded(-f32::NAN).to_bits(), 0x7FFF);
}

/// The experts of the demo differ where it is hardest to see: in one bit of their number. For
/// every choice of the recording, each such neighbour instead of the right expert changes the
/// result's bits.
#[test]
fn any_wrong_expert_changes_the_recorded_result() {
    let routing = Routing::recorded().unwrap();
    let sum = |value: f32, choices: &[Choice], h: usize| {
        let mut sum = 0.0_f32;
        for &(id, weight) in choices {
            sum = expert_output(value, id, h).mul_add(weight, sum);
        }
        rounded(sum)
    };
    for token in 0..routing.sizes.tokens() {
        let right = choices(&routing, token);
        for k in 0..right.len() {
            for bit in 0..7 {
                let mut wrong = right.clone();
                wrong[k].0 ^= 1 << bit;
                // Only here do the two differ at all.
                let mut marked = routing.row(token).iter().enumerate().skip(bit).step_by(16);
                let shows = marked.any(|(h, value)| {
                    let value = value.to_f32();
                    sum(value, &right, h) != sum(value, &wrong, h)
                });
                assert!(shows, "token {token}, choice {k}, bit {bit}");
            }
        }
    }
}

/// Two roundings to bf16, of the expert's output and of the sum, and little else.
#[test]
fn the_recorded_result_is_near_exact_arithmetic() {
    let routing = Routing::recorded().unwrap();
    let combined = ll_expert_major(&routing, expert_output);
    let off = distance(&routing, &combined);
    assert!((3.9e-3..7.9e-3).contains(&off), "{off}");
}
