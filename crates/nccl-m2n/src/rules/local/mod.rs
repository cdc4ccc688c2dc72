//! Rules that only one rank can check: its memory and its stream (M2N 2.1 #28d to #32, 2.7).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{DataType, RawBuffer, rules};

use crate::layout::Layout;

/// What the rules of a rank's memory look at: one side.
pub(crate) struct TileFacts<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) buffer: Option<&'a RawBuffer>,
    pub(crate) rank: usize,
    pub(crate) is_source: bool,
}

impl TileFacts<'_> {
    fn holds_tile(&self) -> bool {
        self.layout.contains(self.rank)
    }

    fn lacks_memory(&self) -> bool {
        self.holds_tile() && self.buffer.is_none_or(|buffer| buffer.ptr.is_null())
    }

    fn bytes(&self) -> usize {
        self.buffer.map_or(0, |buffer| buffer.bytes)
    }

    /// Bytes may be passed for types that Rust has no name for.
    fn type_fits(&self) -> bool {
        let Some(buffer) = self.buffer else { return true };
        let ours = self.layout.data_type();
        buffer.data_type == ours || (buffer.data_type == DataType::Uint8 && ours.size() == 1)
    }
}

rules! {
    /// Checked for both sides on every rank.
    TILE over TileFacts {
        "local.source-memory" on "source": "a rank of the source mesh passes its tile"
            ("M2N 2.1 #28d", Local)
            |f| f.is_source && f.lacks_memory()
                => (format!("memory on rank {}", f.rank), "none");
        "local.destination-memory" on "destination":
            "a rank of the destination mesh passes its tile" ("M2N 2.1 #28e", Local)
            |f| !f.is_source && f.lacks_memory()
                => (format!("memory on rank {}", f.rank), "none");
        "local.data-type" on "data_type": "memory has the layout's element type"
            ("M2N 1.5", Local)
            |f| f.holds_tile() && !f.type_fits()
                => (f.layout.data_type(), f.buffer.map_or(DataType::Uint8, |b| b.data_type));
        "local.bytes" on "local_shape": "a tile lies inside its memory" ("M2N 2.7", Local)
            |f| f.holds_tile() && f.bytes() < f.layout.local_bytes()
                => (format!("at least {} bytes", f.layout.local_bytes()), f.bytes());
    }
}

/// What the rules of a stream look at: whether it is being captured, if the driver can tell.
pub(crate) struct StreamFacts {
    pub(crate) capturing: Option<bool>,
}

rules! {
    /// Checked on every rank. The library refuses it too, on the rank that captures.
    STREAM over plain StreamFacts {
        "local.capture" on "stream": "reshards are not captured into graphs"
            ("M2N 2.1 #32", Local)
            |f| f.capturing == Some(true)
                => ("a stream that is not being captured", "a capturing stream");
    }
}
