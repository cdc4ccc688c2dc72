//! An imported handle goes on as the original.

use nccl_ep_sys::ncclEpGroupConfig_t;
use nccl_ext_core::DataType;
use nccl_ext_test::cpu::ep::import::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;
use nccl_ext_test::rows::check_rows;
use nccl_ext_test::worlds;

use super::DROP;

#[test]
fn flat_goes_on_as_the_original() {
    both_ways(2, |comm| assert_imported_does_as_original(comm, G2, FLAT, 0, |_| ()));
    both_ways(4, |comm| assert_imported_does_as_original(comm, F4K2, FLAT, 0, |_| ()));
}

#[test]
fn expert_major_permute_goes_on_as_the_original() {
    check_rows([0, 1, 4].map(|alignment| (alignment, alignment)), |alignment| {
        both_ways(2, |comm| {
            assert_imported_does_as_original(comm, G2, EXPERT_MAJOR, alignment, |_| ());
        });
        both_ways(4, |comm| {
            assert_imported_does_as_original(comm, F4K2, EXPERT_MAJOR, alignment, |_| ());
        });
    });
}

#[test]
fn expert_major_local_dup_goes_on_as_the_original() {
    let local_dup = |config: &mut ncclEpGroupConfig_t| config.zero_copy = ZERO_COPY_ON;
    check_rows([0, 4].map(|alignment| (alignment, alignment)), |alignment| {
        both_ways(2, |comm| {
            assert_imported_does_as_original(comm, G2, EXPERT_MAJOR, alignment, local_dup);
        });
    });
}

#[test]
fn eager_and_dropping_groups_go_on_as_the_original() {
    type Change = fn(&mut ncclEpGroupConfig_t);
    let eager: Change = |c| (c.max_recv_tokens_per_rank, c.num_topk) = (0, 2);
    let dropping: Change = |c| (c.max_recv_tokens_per_rank, c.overflow_policy) = (4, DROP);
    let rows = [
        ("FLAT, eager", (FLAT, eager)),
        ("FLAT, dropping", (FLAT, dropping)),
        ("expert-major, eager", (EXPERT_MAJOR, eager)),
        ("expert-major, dropping", (EXPERT_MAJOR, dropping)),
    ];
    check_rows(rows, |(layout, change)| {
        both_ways(2, |comm| assert_imported_does_as_original(comm, G2, layout, 2, change));
    });
}

#[test]
fn ranks_without_tokens_are_imported_too() {
    let lone = Fixture {
        ids: |r| if r == 0 { vec![3, 0] } else { vec![] },
        values: |r| if r == 0 { vec![5.0] } else { vec![] },
        ..G2
    };
    check_rows(HIGH_THROUGHPUT_LAYOUTS, |layout| {
        both_ways(2, |comm| assert_imported_does_as_original(comm, lone, layout, 0, |_| ()));
    });
}

#[test]
fn copies_of_several_updates_live_at_once() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::fresh(comm, G2, FLAT, 0, |_| ());
        let original = HandleInMemory::init(&ht.group, FLAT, 2, 0);
        original.update(&mut G2.ids(comm.rank()));
        let first = original.import(&ht.group, 4, DataType::Int64);
        let again = original.import(&ht.group, 4, DataType::Int64);
        // Everything to rank 1.
        original.update(&mut int64_ids(2, &[2, 3, 2, 3, 2, -1, 3, -1]));
        let second = original.import(&ht.group, 4, DataType::Int64);
        let of = |handle: &TestHandle| round_trip(comm, &ht, handle, 16, false);
        let (a, b) = (of(&first.handle), of(&second.handle));
        assert_eq!(of(&again.handle), a);
        assert_eq!(of(&original.handle), b);
        let rows = |round: &RoundTrip| {
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
    both_ways(2, |comm| {
        let ht = HighThroughputRank::fresh(comm, G2, EXPERT_MAJOR, 4, |_| ());
        let original = HandleInMemory::init(&ht.group, EXPERT_MAJOR, 2, 4);
        original.update(&mut int64_ids(2, &[0, -1]));
        let imported = original.import(&ht.group, 1, DataType::Int64);
        imported.update(&mut int32_ids(&G2.ids(comm.rank()), 2));
        original.update(&mut G2.ids(comm.rank()));
        let expected = round_trip(comm, &ht, &original.handle, 16, false);
        assert_eq!(round_trip(comm, &ht, &imported.handle, 16, false), expected);
        let second = imported.import(&ht.group, 4, DataType::Int32);
        drop(imported);
        assert_eq!(round_trip(comm, &ht, &second.handle, 16, false), expected);
    });
}

#[test]
fn a_group_of_the_same_shape_takes_it_without_communication() {
    both_ways(2, |comm| {
        let ht = HighThroughputRank::fresh(comm, G2, FLAT, 0, |_| ());
        let original = HandleInMemory::init(&ht.group, FLAT, 2, 0);
        original.update(&mut G2.ids(comm.rank()));
        let other = TestGroup::new(comm, &G2.config(HIGH_THROUGHPUT, HT_HIDDEN));
        if comm.rank() == 1 {
            // Nobody else is in a call: this would wait for ever if it met anybody.
            drop(original.import(&other, 4, DataType::Int64));
        }
        let imported = original.import(&other, 4, DataType::Int64);
        let expected = round_trip(comm, &ht, &original.handle, 16, false);
        assert_eq!(round_trip(comm, &ht, &imported.handle, 16, false), expected);
    });
}

#[test]
fn ranks_that_import_different_steps_do_not_meet() {
    type Ids = fn(usize) -> Vec<i64>;
    let rows: [(&str, Ids); 3] = [
        ("another routing", |_| vec![2, 3, 2, 3, 2, -1, 3, -1]),
        ("another one with the same counts", |r| match r {
            0 => vec![1, 0, 2, 0, 3, 1, -1, -1],
            _ => (G2.ids)(r),
        }),
        ("the same once more", G2.ids),
    ];
    check_rows(rows, |second| {
        let errors = worlds::errors(2, |comm| {
            let ht = HighThroughputRank::fresh(&comm, G2, FLAT, 0, |_| ());
            let original = HandleInMemory::init(&ht.group, FLAT, 2, 0);
            original.update(&mut G2.ids(comm.rank()));
            let first = original.import(&ht.group, 4, DataType::Int64);
            original.update(&mut int64_ids(2, &second(comm.rank())));
            let handle = if comm.rank() == 0 { &first.handle } else { &original.handle };
            let code = ht.dispatch_into(16).call(handle);
            assert!([INVALID_USAGE, REMOTE_ERROR].contains(&code), "{code:?}");
            let error = take_error().unwrap();
            std::mem::forget(ht.group);
            Err(error)
        });
        for error in errors {
            let detail = usage_detail(&error);
            assert!(detail.contains("update"), "{detail}");
        }
    });
}
