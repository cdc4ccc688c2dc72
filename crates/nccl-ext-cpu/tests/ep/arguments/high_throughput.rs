//! High-throughput dispatch and combine: the checks of their tensors.

use nccl_ext_core::bf16;

use super::*;

/// EP vector A21.
#[test]
fn tokens_of_three_extents_are_refused() {
    every_rank(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        let mut call = ht.dispatch_into(16);
        call.tokens = Some(TestTensor::filled(&[4, 1, HT_HIDDEN], bf16::ZERO));
        assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn recipes_are_known() {
    every_rank(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        let mut call = ht.dispatch_into(16);
        let quant_recipe = ncclEpDispQuant_t(3);
        call.config = Some(ncclEpDispatchConfig_t { quant_recipe, ..VersionedStruct::init() });
        assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, FailureClass::Return);
        let mut call = ht.combine_of(&[0.0; 16]);
        let quant_recipe = ncclEpCombQuant_t(2);
        call.config = Some(ncclEpCombineConfig_t { quant_recipe, ..VersionedStruct::init() });
        assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, FailureClass::Return);
    });
}

type ChangeDispatch = fn(&mut DispatchCall);

/// EP 4.6.
#[test]
fn dispatch_arguments_are_checked_before_communication() {
    use FailureClass::{Assert, Return, Trap, UndefinedBehaviour};
    let rows: [(&str, (ChangeDispatch, FailureClass)); 9] = [
        ("three tokens", (|d| d.tokens = tensor(&[3, HT_HIDDEN]), Assert)),
        ("wide tokens", (|d| d.tokens = tensor(&[4, 2 * HT_HIDDEN]), Assert)),
        ("narrow tokens", (|d| d.tokens = tensor(&[4, 4]), Assert)),
        ("an output of one extent", (|d| d.out_tokens = tensor(&[16]), Return)),
        ("a narrow output", (|d| d.out_tokens = tensor(&[16, 8]), UndefinedBehaviour)),
        ("no output", (|d| d.out_tokens = None, Return)),
        ("no weights", (|d| d.weights = None, Return)),
        ("one weight a token", (|d| d.weights = tensor(&[4, 1]), Assert)),
        ("an unknown kind of ids", (|d| d.id_kind = ncclEpExpertIdKind_t(3), Trap)),
    ];
    check_rows(rows, |(change, class)| {
        every_rank(2, |comm| {
            let ht = HighThroughputRank::new(comm, G2, FLAT);
            let mut call = ht.dispatch_into(16);
            change(&mut call);
            assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, class);
            // Both ranks are still in step.
            assert_eq!(ht.dispatch().rows[..4], G2_FIRST[comm.rank()]);
        });
    });
}

/// The first rows of both ranks in G2.
const G2_FIRST: [[f32; 4]; 2] = [[1., 2., 3., 7.], [1., 2., 5., 6.]];

/// EP 4.6: a rank that breaks one of these rules has communicated, and its peer receives as ever.
#[test]
fn outputs_beside_the_tokens_are_checked_after_communication() {
    use FailureClass::{Assert, Return};
    let rows: [(&str, (ChangeDispatch, FailureClass)); 5] = [
        ("no weights", (|d| d.out_weights = None, Return)),
        ("no ids", (|d| d.out_ids = None, Return)),
        ("weights of one extent", (|d| d.out_weights = tensor(&[16]), Assert)),
        ("15 rows of ids", (|d| d.out_ids = tensor(&[15, 2]), Return)),
        (
            "three rows",
            (|d| (d.out_ids, d.out_weights) = (tensor(&[3, 2]), tensor(&[3, 2])), Return),
        ),
    ];
    check_rows(rows, |(change, class)| {
        every_rank(2, |comm| {
            let ht = HighThroughputRank::new(comm, G2, FLAT);
            let mut call = ht.dispatch_into(16);
            if comm.rank() == 1 {
                assert_eq!(ht.receive(call).rows[..5], [1., 2., 5., 6., 8.]);
            } else {
                change(&mut call);
                assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, class);
                let rows = row_values(&call.out_tokens.unwrap().data, HT_HIDDEN);
                assert!(rows.iter().all(|&x| x == CANARY));
            }
        });
    });
}

type ChangeCombine = fn(&mut CombineCall);

/// EP 4.8.
#[test]
fn combine_arguments_are_checked() {
    use FailureClass::{Assert, JitAbort, Return, UndefinedBehaviour};
    let rows: [(&str, (ChangeCombine, FailureClass)); 7] = [
        ("three extents", (|c| c.tokens = tensor(&[16, 1, HT_HIDDEN]), Assert)),
        ("narrow rows", (|c| c.tokens = tensor(&[16, 4]), Assert)),
        ("weights", (|c| c.in_weights = tensor(&[16, 2]), Return)),
        ("three tokens", (|c| c.out = tensor(&[3, HT_HIDDEN]), Assert)),
        ("no output", (|c| c.out = None, Assert)),
        ("three rows", (|c| c.tokens = tensor(&[3, HT_HIDDEN]), UndefinedBehaviour)),
        (
            "wide rows",
            (
                |c| {
                    c.tokens = tensor(&[16, 2 * HT_HIDDEN]);
                    c.out = tensor(&[4, 2 * HT_HIDDEN]);
                },
                UndefinedBehaviour,
            ),
        ),
    ];
    every_rank(2, |comm| {
        let ht = HighThroughputRank::new(comm, G2, FLAT);
        check_rows(rows, |(change, class)| {
            let mut call = ht.combine_of(&[0.0; 16]);
            change(&mut call);
            assert_refused(call.call(&ht.handle), INVALID_ARGUMENT, class);
        });
        // Four fp32 elements are 16 bytes, but no group of eight elements.
        let (input, output) = (TestTensor::filled(&[16, 4], 0.0), TestTensor::filled(&[4, 4], 0.0));
        let code = CombineCall::<f32>::new(input, output).call(&ht.handle);
        assert_refused(code, INVALID_ARGUMENT, JitAbort);
        // An output of another type is not noticed there.
        let input = TestTensor::filled(&[16, HT_HIDDEN], bf16::ZERO);
        let output = TestTensor::filled(&[4, HT_HIDDEN], 0.0);
        let code = CombineCall::<bf16, f32>::new(input, output).call(&ht.handle);
        assert_refused(code, INVALID_ARGUMENT, UndefinedBehaviour);
    });
}

#[test]
fn sizes_that_kernels_cannot_read_are_refused() {
    let one_token = Fixture { ids: |_| vec![0], values: |_| vec![1.0], ..ONE };
    let rows = [
        (
            "two experts: the bitmap of routing is read four at a time",
            Fixture { experts: 2, ..one_token },
        ),
        ("five tokens on one rank: so is its map", Fixture { max_tokens: 5, ..one_token }),
    ];
    check_rows(rows, |fixture| {
        every_rank(1, |comm| {
            let ht = HighThroughputRank::new(comm, fixture, FLAT);
            let code = ht.dispatch_into(32).call(&ht.handle);
            assert_refused(code, INVALID_ARGUMENT, FailureClass::Assert);
        });
    });
}
