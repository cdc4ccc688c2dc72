//! EP 2.3: the time-out's environment variable. It is read at group creation, so this binary has
//! one test, which sets it before any rank runs.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::masks::*;
use common::*;

/// How long rank 0 waits for a rank that does not come.
fn waited(timeout: Duration) -> Duration {
    let fence = Fence::new(2);
    let waited = ranks(2, |comm| {
        let ll = Ll::on(masked(comm, G2, timeout), comm.rank(), G2, RM);
        let start = Instant::now();
        if comm.rank() == 0 {
            assert_eq!(ll.dispatch().counters, [3, 0]);
        }
        let waited = start.elapsed();
        fence.wait();
        waited
    });
    waited[0]
}

#[test]
fn the_environment_beats_the_configuration_unless_it_is_0() {
    // SAFETY: no other thread runs: this is the only test, and ranks end before their world does.
    unsafe { std::env::set_var("NCCL_EP_TIMEOUT_MS", "120") };
    let time = waited(LONG);
    assert!((Duration::from_millis(120)..LONG).contains(&time), "{time:?}");
    // SAFETY: as above.
    unsafe { std::env::set_var("NCCL_EP_TIMEOUT_MS", "0") };
    // Parts of a millisecond are cut off: this is 250 ms.
    let time = waited(Duration::from_micros(250_999));
    assert!((Duration::from_millis(250)..LONG).contains(&time), "{time:?}");
}
