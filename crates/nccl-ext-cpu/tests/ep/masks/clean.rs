//! Cleaning, by which ranks come back.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use nccl_ep_sys::ncclEpGroupConfig_t;
use nccl_ext_cpu::FailureClass;
use nccl_ext_test::cpu::ep::masks::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

use super::{assert_whole_round, dispatch_and_combine, on_two_masked_ranks};

/// EP vector L23.
#[test]
fn clean_needs_a_handle_or_an_explicit_buffer() {
    both_ways(1, |comm| {
        let config = masked_config(Fixture { experts: 4, ..G2 }, LONG_TIMEOUT);
        let group = TestGroup::new(comm, &config);
        assert_refused(group.try_clean(), INVALID_USAGE, FailureClass::Throw);
        // A handle whose creation fails makes no buffer.
        let too_many = (RANK_MAJOR, 33, 0);
        group.assert_handle_refused(too_many, INVALID_ARGUMENT, FailureClass::Return);
        assert_refused(group.try_clean(), INVALID_USAGE, FailureClass::Throw);
        drop(group.handle(RANK_MAJOR, 2, 0));
        group.clean();
        let explicit =
            TestGroup::new(comm, &ncclEpGroupConfig_t { rdma_buffer_size: 1 << 20, ..config });
        explicit.clean();
    });
}

/// EP 12 #13.
#[test]
fn clean_lays_out_a_rank_major_buffer_of_its_own() {
    // R*M*cm = 520 is no multiple of 16, though an expert-major handle is fine.
    both_ways(1, |comm| {
        let config = ncclEpGroupConfig_t {
            max_dispatch_tokens_per_rank: 1,
            max_token_bytes: 512,
            ..masked_config(Fixture { experts: 4, ..G2 }, LONG_TIMEOUT)
        };
        let group = TestGroup::new(comm, &config);
        let _handle = group.handle(EXPERT_MAJOR, 2, 0);
        assert_refused(group.try_clean(), INVALID_ARGUMENT, FailureClass::Throw);
    });
}

#[test]
fn clean_serves_at_most_256_ranks() {
    for ranks in [256, 257] {
        every_rank(ranks, |comm| {
            let fixture = Fixture { ranks, experts: 2 * ranks, max_tokens: 1, ..G2 };
            let group = TestGroup::new(comm, &masked_config(fixture, LONG_TIMEOUT));
            let _handle = group.handle(RANK_MAJOR, 2, 0);
            if ranks == 256 {
                group.clean();
            } else {
                assert_refused(group.try_clean(), INVALID_USAGE, FailureClass::Trap);
            }
        });
    }
}

#[test]
fn clean_makes_all_active_and_leaves_the_flag() {
    let fence = RankBarrier::new(2);
    on_two_masked_ranks(SHORT_TIMEOUT, RANK_MAJOR, |me, ll| {
        if me == 0 {
            // Two operations ahead of the other, which did not come.
            assert_eq!(dispatch_and_combine(ll).0, [3, 0]);
            ll.group.assert_mask(&[1, 0], 1);
        }
        fence.wait();
        if me == 1 {
            ll.group.set_mask(&[0, 1]);
        }
        ll.group.clean();
        // Rank 0's flag stays.
        ll.group.assert_mask(&[1, 1], 1 - me as i32);
        fence.wait();
        for _ in 0..3 {
            assert_whole_round(ll);
        }
        assert_eq!(ll.group.mask(2), [1, 1]);
    });
}

#[test]
fn operation_counts_that_differ_in_parity_stay_apart() {
    let fence = RankBarrier::new(2);
    on_two_masked_ranks(SHORT_TIMEOUT, RANK_MAJOR, |me, ll| {
        if me == 0 {
            assert_eq!(ll.dispatch().counters, [3, 0]);
        }
        fence.wait();
        if me == 1 {
            ll.group.set_mask(&[0, 1]);
        }
        ll.group.clean();
        ll.group.clear_error();
        fence.wait();
        let received = ll.dispatch();
        assert_eq!(received.counters, [[3, 0], [0, 3]][me]);
        ll.group.assert_mask(&[[1, 0], [0, 1]][me], 1);
    });
}

#[test]
fn clean_is_a_barrier_of_ranks_that_see_each_other() {
    let order = Mutex::new(Vec::new());
    on_two_masked_ranks(LONG_TIMEOUT, RANK_MAJOR, |me, ll| {
        for round in 0..3 {
            if me == 1 {
                std::thread::sleep(Duration::from_millis(50));
                let order = &mut *order.lock().unwrap();
                order.truncate(round);
                order.push(round);
            }
            ll.group.clean();
            assert_eq!(order.lock().unwrap().len(), round + 1, "rank {me} left too early");
            assert_whole_round(ll);
        }
    });
}

#[test]
fn clean_waits_for_a_masking_peer_until_its_time_out() {
    let left = RankBarrier::new(2);
    on_two_masked_ranks(SHORT_TIMEOUT, RANK_MAJOR, |me, ll| {
        // Rank 0 masks rank 1, has cleaned and left before rank 1 comes.
        if me == 0 {
            ll.group.set_mask(&[1, 0]);
            ll.group.clean();
            left.wait();
        } else {
            left.wait();
            let start = Instant::now();
            ll.group.clean();
            assert!(start.elapsed() >= SHORT_TIMEOUT);
        }
        ll.group.assert_mask(&[1, 1], 0);
    });
}

#[test]
fn a_rank_that_masks_itself_does_not_wait_in_clean() {
    let done = RankBarrier::new(2);
    on_two_masked_ranks(LONG_TIMEOUT, RANK_MAJOR, |me, ll| {
        if me == 0 {
            ll.group.set_mask(&[0, 1]);
            let start = Instant::now();
            ll.group.clean();
            assert!(start.elapsed() < LONG_TIMEOUT);
            assert_eq!(ll.group.mask(2), [1, 1]);
        }
        done.wait();
    });
}

#[test]
fn clean_erases_what_was_not_taken() {
    let fence = RankBarrier::new(2);
    on_two_masked_ranks(SHORT_TIMEOUT, RANK_MAJOR, |me, ll| {
        if me == 1 {
            // Rank 0 does not come to this, but its packet is there.
            assert_eq!(ll.dispatch().counters, [0, 3]);
        }
        fence.wait();
        if me == 0 {
            ll.group.set_mask(&[1, 0]);
        }
        ll.group.clean();
        fence.wait();
        if me == 0 {
            assert_eq!(ll.dispatch().counters, [3, 0]);
            ll.group.assert_mask(&[1, 0], 1);
        }
        fence.wait();
    });
}
