//! Who takes part in a low-latency group with masks (EP 6.2).

use core::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::mailbox::{Mailboxes, Patience};
use super::packet::Packet;
use crate::lock::lock;
use crate::queue;
use crate::world::Member;

/// What a low-latency group with `enable_mask` has more than others.
pub(crate) struct Masks {
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// By rank; 0 is masked, everything else active.
    active: Mutex<Vec<c_int>>,
    /// The asynchronous error flag: some wait ran out of time.
    error: AtomicBool,
    /// Whether a handle was ever made, and with it the buffer that a clean works on.
    handles: AtomicBool,
    /// Operations of this rank so far. They are not compared with the peers'.
    operations: Mutex<u64>,
}

impl Masks {
    pub(crate) fn new(mailboxes: Arc<Mailboxes>, ranks: usize) -> Self {
        Self {
            mailboxes,
            active: Mutex::new(vec![1; ranks]),
            error: AtomicBool::new(false),
            handles: AtomicBool::new(false),
            operations: Mutex::new(0),
        }
    }

    pub(crate) fn note_handle(&self) {
        self.handles.store(true, Ordering::Relaxed);
    }

    /// The number of an operation that starts now.
    pub(crate) fn next_operation(&self) -> u64 {
        let mut operations = lock(&self.operations);
        *operations += 1;
        *operations
    }

    pub(crate) fn active(&self) -> Vec<bool> {
        lock(&self.active).iter().map(|&value| value != 0).collect()
    }

    /// The packets of an operation, for which `member`'s rank waits as long as `timeout`. Who is
    /// late is masked from now on.
    pub(crate) fn collect(
        &self,
        member: &Member,
        timeout: Duration,
        operation: u64,
    ) -> Vec<Option<Arc<Packet>>> {
        let lost = |rank| member.is_lost(rank);
        let patience = Patience { me: member.rank(), timeout, lost: &lost };
        let (packets, late) = self.mailboxes.collect(operation, &self.active(), &patience);
        packets.iter().flatten().for_each(|packet| queue::join(&packet.clock));
        let mut active = lock(&self.active);
        for rank in late {
            active[rank] = 0;
            self.error.store(true, Ordering::Relaxed);
        }
        packets
    }

    /// Empties the mailboxes together with the active ranks. All are active afterwards.
    pub(crate) fn clean(&self, member: &Member, timeout: Duration) {
        let lost = |rank| member.is_lost(rank);
        let patience = Patience { me: member.rank(), timeout, lost: &lost };
        self.mailboxes.clean(&self.active(), &patience);
        // Whoever was late in the barriers is active again, too.
        lock(&self.active).fill(1);
    }

    /// The mask as the caller sees it: 0 is masked.
    ///
    /// # Safety
    /// `out` has an element for each rank.
    pub(crate) unsafe fn read(&self, out: *mut c_int) {
        let active = lock(&self.active);
        // SAFETY: this function's contract.
        unsafe { core::ptr::copy_nonoverlapping(active.as_ptr(), out, active.len()) };
    }

    /// Replaces the mask.
    ///
    /// # Safety
    /// `mask` has an element for each rank.
    pub(crate) unsafe fn write(&self, mask: *const c_int) {
        let mut active = lock(&self.active);
        // SAFETY: this function's contract.
        unsafe { core::ptr::copy_nonoverlapping(mask, active.as_mut_ptr(), active.len()) };
    }

    pub(crate) fn has_error(&self) -> bool {
        self.error.load(Ordering::Relaxed)
    }

    pub(crate) fn clear_error(&self) {
        self.error.store(false, Ordering::Relaxed);
    }

    pub(crate) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Relaxed)
    }
}
