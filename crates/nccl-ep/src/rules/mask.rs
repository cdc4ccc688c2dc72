//! Rules of the mask of active ranks (EP 6.2, 11).

use nccl_ext_core::rules;

use crate::geometry::Geometry;

/// What these rules look at.
pub(crate) struct Facts<'a> {
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

impl Facts<'_> {
    /// Bytes of the combine regions that a clean lays out (EP 12 #13).
    fn clean_bytes(&self) -> u128 {
        let wide = u128::from;
        let bytes = wide(self.geometry.max_token_bytes);
        let row = bytes + 4 * (bytes / 256);
        wide(self.geometry.ranks) * wide(self.geometry.max_tokens) * row
    }
}

rules! {
    /// Checked by every mask call.
    RULES over Facts {
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
