//! Rules of a call that are a function of what all ranks share (M2N 2.1, 2.3, 2.4, 2.7).

pub(crate) mod limits;
pub(crate) mod pair;
#[cfg(test)]
pub(super) mod walk;
