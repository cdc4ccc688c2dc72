//! Rules of making a handle of prepared memory (EP 3.3).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{DataType, rules};

use crate::enums::Algorithm;

/// What is imported, and into which group.
pub(crate) struct ImportFacts {
    pub(crate) algorithm: Algorithm,
    /// The group's maximum.
    pub(crate) max_tokens: u64,
    pub(crate) tokens: u64,
    /// Of the routing indices.
    pub(crate) data_type: DataType,
}

rules! {
    /// Checked by [`Group::import_handle`](crate::Group::import_handle).
    RULES over plain ImportFacts {
        "import.high-throughput" on "layout":
            "only high throughput keeps its routing in handle memory" ("EP 3.3", Local)
            |f| f.algorithm == Algorithm::LowLatency => ("a high-throughput group", "a low-latency group");
        "import.tokens" on "state.num_tokens": "a rank dispatches at most the group's maximum"
            ("EP 3.5.2", Local)
            |f| f.tokens > f.max_tokens
                => (format!("at most {} tokens", f.max_tokens), f.tokens);
        "import.data-type" on "state.topk_idx_datatype": "routing indices are integers"
            ("EP 3.5.1", Local)
            |f| !matches!(f.data_type, DataType::Int32 | DataType::Int64)
                => ("int32 or int64", f.data_type);
    }
}
