//! EP 2.3: the time-out's environment variable.

use std::time::{Duration, Instant};

use nccl_ext_test::cpu::ep::masks::*;
use nccl_ext_test::cpu::ep::*;
use nccl_ext_test::cpu::*;

use super::with_environment;

/// How long rank 0 waits for a rank that does not come, with this value of the variable.
fn waited(milliseconds: &str, timeout: Duration) -> Duration {
    let barrier = RankBarrier::new(2);
    let waited = with_environment(&[("NCCL_EP_TIMEOUT_MS", milliseconds)], || {
        every_rank(2, |comm| {
            let ll = LowLatencyRank::masked(comm, G2, timeout, RANK_MAJOR);
            let start = Instant::now();
            if comm.rank() == 0 {
                assert_eq!(ll.dispatch().counters, [3, 0]);
            }
            let waited = start.elapsed();
            barrier.wait();
            waited
        })
    });
    waited[0]
}

#[test]
fn the_environment_beats_the_configuration() {
    let time = waited("120", LONG_TIMEOUT);
    assert!((Duration::from_millis(120)..LONG_TIMEOUT).contains(&time), "{time:?}");
}

#[test]
fn a_variable_of_0_leaves_the_configuration() {
    // Parts of a millisecond are cut off: this is 250 ms.
    let time = waited("0", Duration::from_micros(250_999));
    assert!((Duration::from_millis(250)..LONG_TIMEOUT).contains(&time), "{time:?}");
}
