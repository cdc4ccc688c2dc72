//! Slots: the places of rows in a buffer.

/// In a table of slots: the row is not delivered. In a table of experts: none.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Sets `len` counters to 0.
pub(super) fn zeros(counts: &mut Vec<u32>, len: usize) {
    counts.clear();
    counts.resize(len, 0);
}
