//! Who feeds whom, which bytes that are, and copying them.

mod balance;
mod copy;
mod pieces;

pub(super) use balance::{load_balance, most_fed, source_replica};
pub(super) use copy::copy;
pub(super) use pieces::{piece, sources_of, targets_of};
