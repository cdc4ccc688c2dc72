//! Groups with masks.

use std::rc::Rc;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use nccl_ep_sys::{ncclEpGroupConfig_t, ncclEpLayout_t};
use nccl_ext_core::Comm;
use nccl_ext_core::raw::ncclResult_t;

use super::{Fixture, LL_HIDDEN, LOW_LATENCY, LowLatencyRank, TestGroup, api, assert_ok};
use crate::cpu::{done, stream};

/// Longer than any test waits, and shorter than a world does.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(15);
/// Long enough for a rank that comes, short enough to wait for one that does not.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// A low-latency group with masks and that time-out.
#[track_caller]
pub fn masked_group(comm: &Comm, fixture: Fixture, timeout: Duration) -> Rc<TestGroup> {
    Rc::new(TestGroup::new(comm, &masked_config(fixture, timeout)))
}

impl LowLatencyRank {
    /// On a masked group of its own.
    #[track_caller]
    pub fn masked(
        comm: &Comm,
        fixture: Fixture,
        timeout: Duration,
        layout: ncclEpLayout_t,
    ) -> Self {
        Self::on(masked_group(comm, fixture, timeout), comm.rank(), fixture, layout)
    }
}

pub fn masked_config(fixture: Fixture, timeout: Duration) -> ncclEpGroupConfig_t {
    let timeout_ns = timeout.as_nanos() as u64;
    ncclEpGroupConfig_t { enable_mask: 1, timeout_ns, ..fixture.config(LOW_LATENCY, LL_HIDDEN) }
}

impl TestGroup {
    /// The mask of that many ranks.
    #[track_caller]
    pub fn mask(&self, ranks: usize) -> Vec<i32> {
        let mut mask = vec![-5; ranks + 1];
        // SAFETY: the group is live, and the mask has an element for each of its ranks.
        assert_ok(done(unsafe { (api().ncclEpMaskQuery)(self.raw, mask.as_mut_ptr(), stream()) }));
        assert_eq!(mask.pop(), Some(-5), "written beyond the ranks");
        mask
    }

    /// # Panics
    /// If the mask or the error flag are others.
    #[track_caller]
    pub fn assert_mask(&self, mask: &[i32], error: i32) {
        assert_eq!((&self.mask(mask.len())[..], self.async_error()), (mask, error));
    }

    #[track_caller]
    pub fn set_mask(&self, mask: &[i32]) {
        // SAFETY: the group is live, and the mask has an element for each of its ranks.
        assert_ok(done(unsafe { (api().ncclEpMaskUpdate)(self.raw, mask.as_ptr(), stream()) }));
    }

    pub fn try_clean(&self) -> ncclResult_t {
        // SAFETY: the group is live.
        done(unsafe { (api().ncclEpMaskClean)(self.raw, stream()) })
    }

    #[track_caller]
    pub fn clean(&self) {
        assert_ok(self.try_clean());
    }

    #[track_caller]
    pub fn async_error(&self) -> i32 {
        let mut error = -5;
        // SAFETY: the group is live, and `error` can be written.
        assert_ok(unsafe { (api().ncclEpGetAsyncError)(self.raw, &mut error) });
        error
    }

    #[track_caller]
    pub fn clear_error(&self) {
        // SAFETY: the group is live.
        assert_ok(unsafe { (api().ncclEpErrorClear)(self.raw) });
    }
}

/// The application's own barrier, which gives up when a rank has failed.
#[derive(Debug)]
pub struct RankBarrier {
    ranks: usize,
    waited: Mutex<usize>,
    changed: Condvar,
}

impl RankBarrier {
    pub fn new(ranks: usize) -> Self {
        Self { ranks, waited: Mutex::new(0), changed: Condvar::new() }
    }

    /// # Panics
    /// If a rank does not come.
    #[track_caller]
    pub fn wait(&self) {
        let mut waited = self.waited.lock().unwrap();
        let all = (*waited / self.ranks + 1) * self.ranks;
        *waited += 1;
        self.changed.notify_all();
        let end = self.changed.wait_timeout_while(waited, 2 * LONG_TIMEOUT, |waited| *waited < all);
        assert!(!end.unwrap().1.timed_out(), "a rank did not come");
    }
}
