//! Transfers: the bytes that one rank has for another.

use nccl_ext_core::Result;
use nccl_ext_core::rules::check;

use super::geometry::{Loop, MAX_LOOPS, Piece};
use crate::rules::transfer::{self, RunFacts};

/// The bytes of one source rank's tile that go into one destination rank's tile.
///
/// `run` consecutive bytes are copied for each pass of up to two loops, from `source_offset` and
/// to `destination_offset`, both moved on by the loops' strides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transfer {
    /// The rank that sends.
    pub source: usize,
    /// The rank that receives.
    pub destination: usize,
    /// The shard that the source holds.
    pub source_shard: usize,
    /// The shard that the destination holds.
    pub destination_shard: usize,
    /// First byte in the source's tile.
    pub source_offset: usize,
    /// First byte in the destination's tile.
    pub destination_offset: usize,
    /// Consecutive bytes of each pass.
    pub run: usize,
    loops: [Loop; MAX_LOOPS],
    depth: usize,
}

impl Transfer {
    pub(super) fn new(source: (usize, usize), destination: (usize, usize), piece: &Piece) -> Self {
        Self {
            source: source.0,
            destination: destination.0,
            source_shard: source.1,
            destination_shard: destination.1,
            source_offset: piece.source_offset,
            destination_offset: piece.destination_offset,
            run: piece.run,
            loops: piece.loops,
            depth: piece.depth,
        }
    }

    /// The loops around a run, outermost first; none where the bytes are consecutive.
    #[must_use]
    pub fn loops(&self) -> &[Loop] {
        &self.loops[..self.depth]
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.loops().iter().fold(self.run, |bytes, level| bytes * level.count)
    }

    /// Where each run begins, in the source's and in the destination's tile.
    pub fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let one = Loop { count: 1, ..Loop::default() };
        let level = |i: usize| self.loops().get(i).copied().unwrap_or(one);
        let (outer, inner) = (level(0), level(1));
        (0..outer.count).flat_map(move |i| {
            (0..inner.count).map(move |j| {
                (
                    self.source_offset + i * outer.source_stride + j * inner.source_stride,
                    self.destination_offset
                        + i * outer.destination_stride
                        + j * inner.destination_stride,
                )
            })
        })
    }

    /// Copies the bytes from the source's tile to the destination's, in host memory.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when a tile is too small.
    pub fn copy(&self, source: &[u8], destination: &mut [u8]) -> Result<()> {
        for (from, to) in self.runs() {
            let facts = RunFacts {
                bytes: self.run,
                offsets: (from, to),
                source,
                destination_bytes: destination.len(),
            };
            check(transfer::RUN, |broken| broken(&facts))?;
            // The rule holds, so both are there.
            if let (Some(from), Some(to)) =
                (source.get(from..from + self.run), destination.get_mut(to..to + self.run))
            {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Transfer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Transfer", 7)?;
        fields.serialize_field("source", &self.source)?;
        fields.serialize_field("destination", &self.destination)?;
        fields.serialize_field("source_offset", &self.source_offset)?;
        fields.serialize_field("destination_offset", &self.destination_offset)?;
        fields.serialize_field("loops", self.loops())?;
        fields.serialize_field("run", &self.run)?;
        fields.serialize_field("bytes", &self.bytes())?;
        fields.end()
    }
}
