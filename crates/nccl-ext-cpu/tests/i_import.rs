//! Importing prepared handles: what they do, and which memory is refused.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::import::*;
use common::*;
use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpOverflowPolicy_t, ncclEpZeroCopyMode_t};
use nccl_ext_core::{DataType, Error};
use nccl_ext_cpu::FailureClass;
use proptest::prelude::*;

const ON: ncclEpZeroCopyMode_t = ncclEpZeroCopyMode_t::NCCL_EP_ZERO_COPY_ON;
const DROP: ncclEpOverflowPolicy_t = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;

const G2_STATE: State = State { tokens: 4, topk: 2, id_type: DataType::Int64 };

#[test]
fn flat_goes_on_as_the_original() {
    ranks(2, |comm| imported_does_as_original(comm, G2, FLAT, 0, |_| ()));
    ranks(4, |comm| imported_does_as_original(comm, F4K2, FLAT, 0, |_| ()));
}

#[test]
fn expert_major_permute_goes_on_as_the_original() {
    for alignment in [0, 1, 4] {
        ranks(2, |comm| imported_does_as_original(comm, G2, EM, alignment, |_| ()));
        ranks(4, |comm| imported_does_as_original(comm, F4K2, EM, alignment, |_| ()));
    }
}

#[test]
fn expert_major_local_dup_goes_on_as_the_original() {
    for alignment in [0, 4] {
        ranks(2, |comm| imported_does_as_original(comm, G2, EM, alignment, |c| c.zero_copy = ON));
    }
}

#[test]
fn eager_and_dropping_groups_go_on_as_the_original() {
    let eager = |c: &mut ncclEpGroupConfig_t| {
        c.max_recv_tokens_per_rank = 0;
        c.num_topk = 2;
    };
    let dropping = |c: &mut ncclEpGroupConfig_t| {
        c.max_recv_tokens_per_rank = 4;
        c.overflow_policy = DROP;
    };
    for layout in [FLAT, EM] {
        ranks(2, |comm| imported_does_as_original(comm, G2, layout, 2, eager));
        ranks(2, |comm| imported_does_as_original(comm, G2, layout, 2, dropping));
    }
}

#[test]
fn ranks_without_tokens_are_imported_too() {
    let lone = Fixture {
        ids: |r| if r == 0 { vec![3, 0] } else { vec![] },
        values: |r| if r == 0 { vec![5.0] } else { vec![] },
        ..G2
    };
    for layout in [FLAT, EM] {
        ranks(2, |comm| imported_does_as_original(comm, lone, layout, 0, |_| ()));
    }
}

#[test]
fn copies_of_several_updates_live_at_once() {
    ranks(2, |comm| {
        let ht = Ht::fresh(comm, G2, FLAT, 0, |_| ());
        let original = Lodger::init(&ht.group, FLAT, 2, 0);
        original.update(&mut G2.ids(comm.rank()));
        let first = original.import(&ht.group, 4, DataType::Int64);
        let again = original.import(&ht.group, 4, DataType::Int64);
        // Everything to rank 1.
        original.update(&mut ids(2, &[2, 3, 2, 3, 2, -1, 3, -1]));
        let second = original.import(&ht.group, 4, DataType::Int64);
        let of = |handle: &Handle| round(comm, &ht, handle, 16, false);
        let (a, b) = (of(&first.handle), of(&second.handle));
        assert_eq!(of(&again.handle), a);
        assert_eq!(of(&original.handle), b);
        let rows = |round: &Round| {
            round.received.rows.iter().copied().filter(|&v| v != CANARY).collect::<Vec<_>>()
        };
        let expected: [&[f32]; 2] = [&[1., 2., 3., 7.], &[1., 2., 5., 6., 8.]];
        assert_eq!(rows(&a), expected[comm.rank()]);
        let all: Vec<_> = (1..=8).map(|v| v as f32).collect();
        assert_eq!(rows(&b), [&[][..], &all][comm.rank()]);
    });
}

#[test]
fn an_imported_handle_can_be_updated_and_imported_again() {
    ranks(2, |comm| {
        let ht = Ht::fresh(comm, G2, EM, 4, |_| ());
        let original = Lodger::init(&ht.group, EM, 2, 4);
        original.update(&mut ids(2, &[0, -1]));
        let imported = original.import(&ht.group, 1, DataType::Int64);
        imported.update(&mut narrow(&G2.ids(comm.rank()), 2));
        original.update(&mut G2.ids(comm.rank()));
        let expected = round(comm, &ht, &original.handle, 16, false);
        assert_eq!(round(comm, &ht, &imported.handle, 16, false), expected);
        let second = imported.import(&ht.group, 4, DataType::Int32);
        drop(imported);
        assert_eq!(round(comm, &ht, &second.handle, 16, false), expected);
    });
}

#[test]
fn a_group_of_the_same_shape_takes_it_without_communication() {
    ranks(2, |comm| {
        let ht = Ht::fresh(comm, G2, FLAT, 0, |_| ());
        let original = Lodger::init(&ht.group, FLAT, 2, 0);
        original.update(&mut G2.ids(comm.rank()));
        let other = Group::new(comm, &G2.config(HT, H));
        if comm.rank() == 1 {
            // Nobody else is in a call: this would wait for ever if it met anybody.
            drop(original.import(&other, 4, DataType::Int64));
        }
        let imported = original.import(&other, 4, DataType::Int64);
        let expected = round(comm, &ht, &original.handle, 16, false);
        assert_eq!(round(comm, &ht, &imported.handle, 16, false), expected);
    });
}

#[test]
fn ranks_that_import_different_steps_do_not_meet() {
    // Another routing, another one with the same counts, and the same once more.
    let routings: [fn(usize) -> Vec<i64>; 3] = [
        |_| vec![2, 3, 2, 3, 2, -1, 3, -1],
        |r| if r == 0 { vec![1, 0, 2, 0, 3, 1, -1, -1] } else { (G2.ids)(r) },
        G2.ids,
    ];
    for (second, routing) in routings.into_iter().enumerate() {
        let config = nccl_ext_cpu::CpuConfig::new();
        let results = nccl_ext_cpu::run_ranks(2, &config, |comm| {
            let ht = Ht::fresh(&comm, G2, FLAT, 0, |_| ());
            let original = Lodger::init(&ht.group, FLAT, 2, 0);
            original.update(&mut G2.ids(comm.rank()));
            let first = original.import(&ht.group, 4, DataType::Int64);
            original.update(&mut ids(2, &routing(comm.rank())));
            let handle = if comm.rank() == 0 { &first.handle } else { &original.handle };
            let code = ht.dispatch_into(16).call(handle);
            std::mem::forget(ht.group);
            Ok::<_, Error>(code)
        });
        for result in results {
            assert_ne!(result.unwrap(), OK, "routing {second}");
        }
    }
}

/// What is wrong with an import, and the words that say so.
type Wrong = (&'static str, fn(&mut ncclEpGroupConfig_t));

#[test]
fn memory_of_another_shape_names_the_difference() {
    let groups: [Wrong; 5] = [
        ("max_dispatch_tokens_per_rank", |c| c.max_dispatch_tokens_per_rank = 8),
        ("max_recv_tokens_per_rank", |c| c.max_recv_tokens_per_rank = 24),
        ("num_experts", |c| c.num_experts = 8),
        ("DROP", |c| c.overflow_policy = DROP),
        ("the expert-major mode", |c| c.zero_copy = ON),
    ];
    ranks(2, |comm| {
        let config = G2.config(HT, H);
        let group = Group::new(comm, &config);
        let original = Lodger::init(&group, EM, 2, 4);
        original.update(&mut G2.ids(comm.rank()));
        let big = || {
            Ten::new(
                &[1 << 16],
                [original.copy().data, vec![0; 1 << 16]].concat()[..1 << 16].to_vec(),
            )
        };
        let refusal = |group: &Group, layout, alignment, state, memory, word: &str| {
            let (code, handle) = Lodger::try_import(memory, group, layout, alignment, state);
            assert!(handle.is_none(), "{word}");
            refused_saying(code, word);
        };
        for (word, change) in groups {
            let mut other = config;
            change(&mut other);
            let group = Group::new(comm, &other);
            refusal(&group, EM, 4, G2_STATE, big(), word);
        }
        refusal(&group, FLAT, 0, G2_STATE, big(), "the layout");
        refusal(&group, EM, 2, G2_STATE, big(), "alignment");
        refusal(&group, EM, 4, State { tokens: 3, ..G2_STATE }, big(), "num_tokens");
        refusal(&group, EM, 4, State { topk: 1, ..G2_STATE }, big(), "num_topk");
        let int32 = State { id_type: DataType::Int32, ..G2_STATE };
        refusal(&group, EM, 4, int32, big(), "the type of topk_idx");
        // The same bytes are still good.
        let (code, _) = Lodger::try_import(big(), &group, EM, 4, G2_STATE);
        ok(code);
    });
}

#[test]
fn memory_of_another_rank_is_refused() {
    let memories = std::sync::Mutex::new(vec![Vec::new(); 2]);
    ranks(2, |comm| {
        let ht = Ht::fresh(comm, G2, FLAT, 0, |_| ());
        let original = Lodger::init(&ht.group, FLAT, 2, 0);
        original.update(&mut G2.ids(comm.rank()));
        memories.lock().unwrap()[comm.rank()] = original.copy().data;
        // Both are there after the next collective.
        original.update(&mut G2.ids(comm.rank()));
        let other = memories.lock().unwrap()[1 - comm.rank()].clone();
        let other = Ten::new(&[other.len()], other);
        let (code, _) = Lodger::try_import(other, &ht.group, FLAT, 0, G2_STATE);
        refused_saying(code, "the rank");
    });
}

#[track_caller]
fn refused_saying(code: nccl_ext_core::raw::ncclResult_t, word: &str) {
    refused(code, ARGUMENT, FailureClass::Return);
    // `refused` took the error; the text of the communicator's last error stays.
    // SAFETY: the call takes a null communicator and returns a string that lives until the thread's
    // next call.
    let text = unsafe {
        std::ffi::CStr::from_ptr((nccl_ext_cpu::backend().nccl().ncclGetLastError)(
            std::ptr::null_mut(),
        ))
    };
    let text = text.to_string_lossy();
    assert!(text.contains(word), "{word}: {text}");
}

#[test]
fn memory_that_no_update_prepared_is_refused() {
    ranks(1, |comm| {
        let group = Group::new(comm, &ncclEpGroupConfig_t { num_experts: 4, ..G2.config(HT, H) });
        let original = Lodger::init(&group, FLAT, 2, 0);
        let none = |memory| Lodger::try_import(memory, &group, FLAT, 0, G2_STATE).0;
        refused_saying(none(original.copy()), "mark");
        refused_saying(none(memory(original.memory.data.len(), 0xFF)), "mark");
        original.update(&mut ids(2, &[0, 1, 2, 3, 0, -1, -1, -1]));
        ok(none(original.copy()));
    });
}

#[test]
fn an_update_that_overruns_leaves_nothing_to_import() {
    ranks(1, |comm| {
        let config = ncclEpGroupConfig_t { max_recv_tokens_per_rank: 4, ..G2.config(HT, H) };
        let group = Group::new(comm, &config);
        let original = Lodger::init(&group, EM, 2, 0);
        original.update(&mut ids(2, &[0, 1]));
        let mut many = ids(2, &[0, 1, 0, 1, 0, 1]);
        assert_ne!(update_with(&original.handle, &mut many, std::ptr::null()), OK);
        let state = State { tokens: 1, ..G2_STATE };
        let (code, _) = Lodger::try_import(original.copy(), &group, EM, 0, state);
        refused_saying(code, "mark");
    });
}

#[test]
fn low_latency_handles_are_not_imported() {
    ranks(2, |comm| {
        let group = Group::new(comm, &G2.config(LL, WIDE));
        let (code, _) =
            Lodger::try_import(memory(memory_size(&group, EM, 2), 0), &group, EM, 0, G2_STATE);
        refused(code, USAGE, FailureClass::Return);
    });
}

#[test]
fn the_descriptor_has_the_rules_of_init_handle() {
    ranks(1, |comm| {
        let group = Group::new(comm, &G2.config(HT, H));
        let bytes = memory_size(&group, FLAT, 2);
        let (code, _) = Lodger::try_import(memory(bytes - 1, 0), &group, FLAT, 0, G2_STATE);
        refused(code, ARGUMENT, FailureClass::Assert);
        let mut flat = memory(bytes, 0);
        flat.raw().ndim = 0;
        let (code, _) = Lodger::try_import(flat, &group, FLAT, 0, G2_STATE);
        refused(code, ARGUMENT, FailureClass::Assert);
    });
}

/// The bytes that an update writes, whatever was there.
fn image(group: &Group, layout: nccl_ep_sys::ncclEpLayout_t) -> (Ten<u8>, usize) {
    let bytes = memory_size(group, layout, 2);
    let [zeros, ones] = [0x00, 0xFF].map(|fill| {
        let lodger = Lodger::in_memory(memory(bytes, fill), group, layout, 2, 0);
        lodger.update(&mut ids(2, &[0, 2, 3, 1, 1, 0, -1, -1]));
        lodger.memory
    });
    let differ = zeros.data.iter().zip(&ones.data).position(|(a, b)| *a == 0 && *b == 0xFF);
    // Update numbers differ, so compare where the fills show.
    (ones, differ.unwrap())
}

#[test]
fn a_change_of_any_byte_is_refused() {
    ranks(1, |comm| {
        let group = Group::new(comm, &G2.config(HT, H));
        for layout in [FLAT, EM] {
            let (good, len) = image(&group, layout);
            let import = |data: Vec<u8>| {
                let memory = Ten::new(&[data.len()], data);
                Lodger::try_import(memory, &group, layout, 0, G2_STATE).0
            };
            ok(import(good.data.clone()));
            for at in 0..len {
                for flip in [0x01, 0x80, 0xFF] {
                    let mut bad = good.data.clone();
                    bad[at] ^= flip;
                    assert_eq!(import(bad), ARGUMENT, "byte {at} of {len} with {flip:#x}");
                }
            }
            // What lies behind it does not count.
            let mut more = good.data.clone();
            more[len + 8] ^= 0xFF;
            ok(import(more));
        }
    });
}

#[test]
fn a_truncated_image_is_refused() {
    ranks(1, |comm| {
        let group = Group::new(comm, &G2.config(HT, H));
        let (good, len) = image(&group, EM);
        for end in 0..len {
            let mut bad = good.data.clone();
            // Where the image ends in zeros, cutting them changes nothing.
            bad[end..].fill(0xA5);
            let memory = Ten::new(&[bad.len()], bad);
            let (code, _) = Lodger::try_import(memory, &group, EM, 0, G2_STATE);
            assert_eq!(code, ARGUMENT, "cut at {end} of {len}");
        }
    });
}

/// Damage: some bytes of the image become others.
fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_is_refused(damage in damage()) {
        ranks(1, |comm| {
            let group = Group::new(comm, &G2.config(HT, H));
            let (good, len) = image(&group, EM);
            let mut bad = good.data.clone();
            for (at, flip) in &damage {
                bad[at.index(len)] ^= flip;
            }
            let same = bad == good.data;
            let memory = Ten::new(&[bad.len()], bad);
            let (code, _) = Lodger::try_import(memory, &group, EM, 0, G2_STATE);
            assert_eq!(code == OK, same);
        });
    }
}
