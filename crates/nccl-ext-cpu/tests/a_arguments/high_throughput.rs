//! High-throughput dispatch and combine: A21 and the checks of their tensors.

use nccl_ext_core::bf16;

use super::*;

#[test]
fn a21_tokens_of_three_extents() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut call = ht.dispatch_into(16);
        call.tokens = Some(Ten::filled(&[4, 1, H], bf16::ZERO));
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn recipes_are_known_and_none_has_no_scales() {
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        let mut call = ht.dispatch_into(16);
        let quant_recipe = ncclEpDispQuant_t(3);
        call.config = Some(ncclEpDispatchConfig_t { quant_recipe, ..VersionedStruct::init() });
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
        let mut call = ht.combine_of(&[0.0; 16]);
        let quant_recipe = ncclEpCombQuant_t(2);
        call.config = Some(ncclEpCombineConfig_t { quant_recipe, ..VersionedStruct::init() });
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
        let mut call = ht.dispatch_into(16);
        call.out_tokens = None;
        refused(call.call(&ht.handle), ARGUMENT, FailureClass::Return);
    });
}

#[test]
fn high_throughput_dispatch_arguments() {
    use FailureClass::{Assert, Return, UndefinedBehaviour};
    type Change = fn(&mut Dispatch);
    let pre: [(Change, FailureClass); 7] = [
        (|d| d.tokens = Some(Ten::filled(&[3, H], bf16::ZERO)), Assert),
        (|d| d.tokens = Some(Ten::filled(&[4, 2 * H], bf16::ZERO)), Assert),
        (|d| d.tokens = Some(Ten::filled(&[4, 4], bf16::ZERO)), Assert),
        (|d| d.out_tokens = Some(Ten::filled(&[16], bf16::ZERO)), Return),
        (|d| d.out_tokens = Some(Ten::filled(&[16, 8], bf16::ZERO)), UndefinedBehaviour),
        (|d| d.weights = None, Return),
        (|d| d.weights = Some(Ten::filled(&[4, 1], 0.0)), Assert),
    ];
    let late: [(Change, FailureClass); 5] = [
        (|d| d.out_weights = None, Return),
        (|d| d.out_ids = None, Return),
        (|d| d.out_weights = Some(Ten::filled(&[16], 0.0)), Assert),
        (|d| d.out_ids = Some(Ten::filled(&[15, 2], 0)), Return),
        (
            |d| {
                d.out_ids = Some(Ten::filled(&[3, 2], 0));
                d.out_weights = Some(Ten::filled(&[3, 2], 0.0));
            },
            Return,
        ),
    ];
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        for (change, class) in pre {
            let mut call = ht.dispatch_into(16);
            change(&mut call);
            refused(call.call(&ht.handle), ARGUMENT, class);
        }
        // Late rules: rank 0 breaks them and has communicated, rank 1 receives as ever.
        for (change, class) in late {
            let mut call = ht.dispatch_into(16);
            if comm.rank() == 1 {
                ok(call.call(&ht.handle));
                assert_eq!(Received::of(call).rows[..5], [1., 2., 5., 6., 8.]);
            } else {
                change(&mut call);
                refused(call.call(&ht.handle), ARGUMENT, class);
                let rows = values(&call.out_tokens.unwrap().data, H);
                assert!(rows.iter().all(|&x| x == CANARY));
            }
        }
        let mut call = ht.dispatch_into(16);
        let mut info = ncclEpLayoutInfo_t::init();
        info.recv_topk_idx_kind = ncclEpExpertIdKind_t(3);
        let mut inputs = ncclEpDispatchInputs_t::init();
        (inputs.tokens, inputs.topk_weights) = (d(&mut call.tokens), d(&mut call.weights));
        let mut outputs = ncclEpDispatchOutputs_t::init();
        outputs.tokens = d(&mut call.out_tokens);
        outputs.topk_weights = d(&mut call.out_weights);
        outputs.topk_idx = d(&mut call.out_ids);
        let code = raw::dispatch(ht.handle.raw, &inputs, &outputs, &info);
        refused(code, ARGUMENT, FailureClass::Trap);
        ht.dispatch();
    });
}

#[test]
fn high_throughput_combine_arguments() {
    use FailureClass::{Assert, JitAbort, Return, UndefinedBehaviour};
    type Change = fn(&mut Combine);
    let rows: [(Change, FailureClass); 7] = [
        (|c| c.tokens = Some(Ten::filled(&[16, 1, H], bf16::ZERO)), Assert),
        (|c| c.tokens = Some(Ten::filled(&[16, 4], bf16::ZERO)), Assert),
        (|c| c.in_weights = Some(Ten::filled(&[16, 2], 0.0)), Return),
        (|c| c.out = Some(Ten::filled(&[3, H], bf16::ZERO)), Assert),
        (|c| c.out = None, Assert),
        (|c| c.tokens = Some(Ten::filled(&[3, H], bf16::ZERO)), UndefinedBehaviour),
        (
            |c| {
                c.tokens = Some(Ten::filled(&[16, 2 * H], bf16::ZERO));
                c.out = Some(Ten::filled(&[4, 2 * H], bf16::ZERO));
            },
            UndefinedBehaviour,
        ),
    ];
    ranks(2, |comm| {
        let ht = Ht::new(comm, G2, FLAT);
        for (change, class) in rows {
            let mut call = ht.combine_of(&[0.0; 16]);
            change(&mut call);
            refused(call.call(&ht.handle), ARGUMENT, class);
        }
        // Four fp32 elements are 16 bytes, but no group of eight elements.
        let (mut input, mut output) =
            (Ten::filled(&[16, 4], 0.0_f32), Ten::filled(&[4, 4], 0.0_f32));
        let mut inputs = ncclEpCombineInputs_t::init();
        inputs.tokens = input.d();
        let mut outputs = ncclEpCombineOutputs_t::init();
        outputs.tokens = output.d();
        let code = raw::combine(ht.handle.raw, &inputs, &outputs);
        refused(code, ARGUMENT, JitAbort);
        // An output of another type is not noticed there.
        let (mut input, mut output) =
            (Ten::filled(&[16, H], bf16::ZERO), Ten::filled(&[4, H], 0.0_f32));
        (inputs.tokens, outputs.tokens) = (input.d(), output.d());
        let code = raw::combine(ht.handle.raw, &inputs, &outputs);
        refused(code, ARGUMENT, UndefinedBehaviour);
    });
}

#[test]
fn sizes_that_kernels_cannot_read() {
    ranks(1, |comm| {
        // Two experts in all: the routing bitmap is read four at a time.
        let two = Fixture { experts: 2, ids: |_| vec![0], values: |_| vec![1.0], ..ONE };
        let ht = Ht::new(comm, two, FLAT);
        refused(ht.dispatch_into(32).call(&ht.handle), ARGUMENT, FailureClass::Assert);
        // Five tokens on one rank: so is the routing map.
        let five = Fixture { max_tokens: 5, ids: |_| vec![0], values: |_| vec![1.0], ..ONE };
        let ht = Ht::new(comm, five, FLAT);
        refused(ht.dispatch_into(32).call(&ht.handle), ARGUMENT, FailureClass::Assert);
    });
}
