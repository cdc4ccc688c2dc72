//! The rule of received expert ids (EP 4.3, 4.6).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

/// Ids on the host, and what the caller says of them.
pub(crate) struct ReceivedFacts {
    /// Rows that were counted.
    pub(crate) rows: usize,
    pub(crate) topk: usize,
    /// How many ids there are.
    pub(crate) ids: usize,
}

rules! {
    /// Checked by [`ReceivedExperts::new`](crate::ReceivedExperts::new).
    RULES over plain ReceivedFacts {
        "received.rows" on "ids": "received ids hold the rows that were counted"
            ("EP 4.3, 4.6", Local)
            |f| f.rows.checked_mul(f.topk).is_none_or(|needed| needed > f.ids)
                => (format!("{} x {} ids", f.rows, f.topk), f.ids);
    }
}
