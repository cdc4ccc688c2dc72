//! Rules of the mask of active ranks (EP 6.2, 11).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{DataType, rules};

use crate::geometry::Geometry;

/// A mask call and its group.
pub(crate) struct MaskFacts<'a> {
    pub(crate) geometry: &'a Geometry,
    /// Whether the group has a mask.
    pub(crate) enabled: bool,
    /// Entries of the given mask.
    pub(crate) entries: u64,
    /// Whether the call concerns this rank alone, not the clean.
    pub(crate) local: bool,
    /// Whether a handle was made of the group.
    pub(crate) handles: bool,
}

impl MaskFacts<'_> {
    /// Bytes of the combine regions that a clean lays out (EP 12 #13).
    fn clean_bytes(&self) -> u128 {
        let wide = u128::from;
        let bytes = wide(self.geometry.max_token_bytes);
        let row = bytes + 4 * (bytes / 256);
        wide(self.geometry.ranks) * wide(self.geometry.max_tokens) * row
    }
}

/// Where a query writes the mask to.
pub(crate) struct MaskBufferFacts {
    pub(crate) data_type: DataType,
    pub(crate) entries: u64,
    pub(crate) ranks: u64,
}

rules! {
    /// Checked by [`Group::mask_query`](crate::Group::mask_query).
    QUERY over plain MaskBufferFacts {
        "mask.buffer" on "mask_status": "the mask has one int32 a rank" ("EP 6.2", Local)
            |f| f.data_type != DataType::Int32 || f.entries != f.ranks
                => (format!("[{}] of int32", f.ranks), format!("[{}] of {}", f.entries, f.data_type));
    }
}

rules! {
    /// Checked by every mask call.
    RULES over MaskFacts {
        "mask.enabled" on "enable_mask": "the group was created with a mask" ("EP 6.2", Uniform)
            |f| !f.enabled => ("enable_mask in GroupConfig", "false");
        "mask.entries" on "mask": "the mask has one entry a rank" ("EP 6.2", Local)
            |f| f.entries != f.geometry.ranks
                => (format!("{} entries", f.geometry.ranks), f.entries);
        "mask.clean-handle" on "group": "a clean works on the buffer that the first handle brings"
            ("EP 6.2", Uniform)
            |f| !f.local && !f.handles && f.geometry.rdma_buffer == 0
                => ("a handle made before, or an rdma_buffer_size", "neither");
        "mask.clean-ranks" on "communicator": "a clean meets at most 256 ranks" ("EP 6.2", Uniform)
            |f| !f.local && f.geometry.ranks > 256 => ("at most 256 ranks", f.geometry.ranks);
        "mask.clean-units" on "max_token_bytes":
            "a clean lays out regions in units of 16 bytes" ("EP 12 #13", Uniform)
            |f| !f.local && !f.clean_bytes().is_multiple_of(16)
                => ("ranks x tokens x row bytes a multiple of 16", f.clean_bytes());
    }
}
