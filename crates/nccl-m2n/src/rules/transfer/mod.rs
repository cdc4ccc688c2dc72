//! Rules of a transfer that the host copies (M2N 3.2).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::rules;

/// What the rules of one run of bytes look at: it and both tiles.
pub(crate) struct RunFacts<'a> {
    /// Consecutive bytes.
    pub(crate) bytes: usize,
    /// First byte in the source's and in the destination's tile.
    pub(crate) offsets: (usize, usize),
    pub(crate) source: &'a [u8],
    /// Bytes of the destination's tile.
    pub(crate) destination_bytes: usize,
}

impl RunFacts<'_> {
    fn is_inside(&self) -> bool {
        let ends_by = |offset: usize, tile: usize| {
            offset.checked_add(self.bytes).is_some_and(|end| end <= tile)
        };
        ends_by(self.offsets.0, self.source.len())
            && ends_by(self.offsets.1, self.destination_bytes)
    }
}

rules! {
    /// Checked for every run of a transfer.
    RUN over RunFacts {
        "transfer.inside-tiles" on "tile": "a transfer stays inside both tiles"
            ("M2N 3.2", Local)
            |f| !f.is_inside()
                => (format!("runs of {} bytes from {} to {}", f.bytes, f.offsets.0, f.offsets.1),
                    format!("tiles of {} and {} bytes", f.source.len(), f.destination_bytes));
    }
}
