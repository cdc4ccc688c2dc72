//! What was found wrong with ids, from where they were looked at to the host.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reports that are kept until they are read; older ones only count.
const KEPT: u64 = 4;

/// Memory that both the device and the host see: how many copies had wrong ids, and of the last
/// few of them what was wrong. Copies of one handle run one after the other, so one writes at a time,
/// and the host never writes: reading needs no lock and no wait.
#[derive(Debug, Default)]
#[repr(C)]
pub struct IdReport {
    reports: AtomicU64,
    kept: [Entry; KEPT as usize],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Entry {
    /// Wrong ids so far, in all copies.
    total: AtomicU64,
    /// `token * topk + choice` of this copy's first one.
    first: AtomicU64,
}

/// Wrong ids that were not read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) count: u64,
    /// Of the oldest copy that is still known.
    pub(super) first: u64,
    /// What to pass to the next [`IdReport::after`].
    pub(super) reports: u64,
    pub(super) total: u64,
}

impl IdReport {
    fn entry(&self, report: u64) -> &Entry {
        &self.kept[(report % KEPT) as usize]
    }

    /// A copy found `count` wrong ids, the first at index `first`.
    pub fn publish(&self, count: u64, first: u64) {
        let reports = self.reports.load(Ordering::Relaxed);
        let before = match reports {
            0 => 0,
            _ => self.entry(reports - 1).total.load(Ordering::Relaxed),
        };
        let entry = self.entry(reports);
        entry.total.store(before.wrapping_add(count), Ordering::Relaxed);
        entry.first.store(first, Ordering::Relaxed);
        self.reports.store(reports + 1, Ordering::Release);
    }

    /// Wrong ids in all copies so far, and the index of the first one of the latest copy that had any.
    #[must_use]
    pub fn latest(&self) -> Option<(u64, u64)> {
        let entry = self.entry(self.reports.load(Ordering::Acquire).checked_sub(1)?);
        Some((entry.total.load(Ordering::Relaxed), entry.first.load(Ordering::Relaxed)))
    }

    /// What was found after the first `read` reports, which had `total` wrong ids.
    pub(super) fn after(&self, read: u64, total: u64) -> Option<Wrong> {
        let mut reports = self.reports.load(Ordering::Acquire);
        while reports != read {
            let oldest = read.max(reports.saturating_sub(KEPT));
            let first = self.entry(oldest).first.load(Ordering::Relaxed);
            let now = self.entry(reports - 1).total.load(Ordering::Relaxed);
            // Both are of these reports unless newer ones have taken their place meanwhile.
            std::sync::atomic::fence(Ordering::Acquire);
            let newer = self.reports.load(Ordering::Relaxed);
            if newer == reports {
                return Some(Wrong { count: now.wrapping_sub(total), first, reports, total: now });
            }
            reports = newer;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    /// The offsets that `check.ptx` has in numbers.
    #[test]
    fn the_kernel_finds_the_entries() {
        assert_eq!((offset_of!(IdReport, kept), size_of::<Entry>()), (8, 16));
        assert_eq!((offset_of!(Entry, total), offset_of!(Entry, first)), (0, 8));
    }

    #[test]
    fn each_report_is_read_once_and_older_ones_still_count() {
        let report = IdReport::default();
        assert_eq!((report.after(0, 0), report.latest()), (None, None));
        report.publish(3, 7);
        let wrong = report.after(0, 0).unwrap();
        assert_eq!(wrong, Wrong { count: 3, first: 7, reports: 1, total: 3 });
        assert_eq!(report.after(wrong.reports, wrong.total), None);
        report.publish(1, 9);
        report.publish(2, 4);
        assert_eq!(report.latest(), Some((6, 4)));
        let wrong = report.after(wrong.reports, wrong.total).unwrap();
        assert_eq!(wrong, Wrong { count: 3, first: 9, reports: 3, total: 6 });
        for first in 10..16 {
            report.publish(1, first);
        }
        let wrong = report.after(wrong.reports, wrong.total).unwrap();
        assert_eq!(wrong, Wrong { count: 6, first: 12, reports: 9, total: 12 });
    }
}
