//! EP 9.2: the arithmetic of a FLAT combine.

use std::fmt::Debug;

use nccl_ext_core::{Element, bf16, f16};
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

/// One token of rank 0 goes to every rank, which give `rows` back; its sum.
fn sum_of<T: Element + Debug>(rows: &[T]) -> T {
    let fixture = Fixture {
        ranks: rows.len(),
        experts: 4 * rows.len(),
        topk: rows.len(),
        max_recv: 16,
        ids: |_| vec![],
        values: |_| vec![],
        ..F4
    };
    let [now, later] = both_ways(rows.len(), |comm| {
        let mut ht = HighThroughputRank::fresh(comm, fixture, FLAT, 0, |c| c.max_token_bytes = 64);
        let tokens = usize::from(comm.rank() == 0);
        let to: Vec<_> = (0..rows.len() as i64).map(|rank| 4 * rank).collect();
        let to = if tokens == 1 { to } else { vec![] };
        assert_ok(ht.update(&mut TestTensor::new(&[tokens, rows.len()], to)));
        assert_eq!(ht.published.total, 1);
        let input = TestTensor::filled(&[1, HT_HIDDEN], rows[comm.rank()]);
        let output = TestTensor::filled(&[tokens, HT_HIDDEN], T::default());
        let mut call = CombineCall::<T>::new(input, output);
        assert_ok(call.call(&ht.handle));
        let sum = call.out.unwrap().data;
        sum.first().copied()
    });
    // NaN is not equal to itself, but has one word.
    assert_eq!(format!("{:?}", now[0]), format!("{:?}", later[0]));
    now[0].unwrap()
}

/// EP vector B17.
#[test]
fn three_contributions_are_rounded_once() {
    assert_eq!(sum_of(&[256.0, 1.0, 1.0].map(bf16::from_f32)), bf16::from_f32(258.0));
}

/// EP vector B18.
#[test]
fn a_tie_goes_to_even() {
    assert_eq!(sum_of(&[256.0, 1.0].map(bf16::from_f32)), bf16::from_f32(256.0));
}

/// EP vector B19.
#[test]
fn fp16_overflows_to_infinity() {
    assert_eq!(sum_of(&[f16::from_f32(65504.0); 2]), f16::INFINITY);
}

/// EP vector B20.
#[test]
fn minus_zero_becomes_zero() {
    assert_eq!(sum_of(&[bf16::NEG_ZERO]).to_bits(), 0);
    assert_eq!(sum_of(&[-0.0_f32]).to_bits(), 0);
}

/// EP 4.4.3.
#[test]
fn nan_is_canonical() {
    assert_eq!(sum_of(&[bf16::from_bits(0xFFC1), bf16::ONE]).to_bits(), 0x7FFF);
    assert_eq!(sum_of(&[f32::INFINITY, f32::NEG_INFINITY]).to_bits(), 0x7FFF_FFFF);
}
