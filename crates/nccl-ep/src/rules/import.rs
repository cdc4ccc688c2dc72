//! Rules of taking and restoring copies of prepared handles (EP 3.3).

use nccl_ext_core::{DataType, rules};

use crate::enums::Algorithm;
use crate::geometry::Geometry;
use crate::handle::HandleState;

/// What these rules look at.
pub(crate) struct Facts<'a> {
    pub(crate) geometry: &'a Geometry,
    /// Whether the handle's memory is the caller's.
    pub(crate) own_memory: bool,
    /// What an update has prepared.
    pub(crate) state: Option<HandleState>,
}

impl Facts<'_> {
    fn ll(&self) -> bool {
        self.geometry.algorithm == Algorithm::LowLatency
    }

    fn tokens(&self) -> u64 {
        self.state.map_or(0, |state| state.num_tokens as u64)
    }

    fn data_type(&self) -> DataType {
        self.state.map_or(DataType::Int64, |state| state.topk_idx_datatype)
    }
}

rules! {
    /// Checked by [`Handle::snapshot`](crate::Handle::snapshot).
    SNAPSHOT over Facts {
        "snapshot.high-throughput" on "handle":
            "only high throughput keeps its routing in handle memory" ("EP 3.3", Local)
            |f| f.ll() => ("a high-throughput handle", "a low-latency handle");
        "snapshot.prepared" on "handle": "an update prepares what a snapshot copies"
            ("EP 3.3", Local)
            |f| f.state.is_none() => ("an update before it", "none");
        "snapshot.memory" on "handle_mem": "memory of the library's cannot be copied"
            ("EP 3.3", Local)
            |f| !f.own_memory
                => ("a handle made with memory of the caller's", "memory of the library's");
    }
}

rules! {
    /// Checked by [`Group::import_handle`](crate::Group::import_handle).
    IMPORT over Facts {
        "import.high-throughput" on "layout":
            "only high throughput keeps its routing in handle memory" ("EP 3.3", Local)
            |f| f.ll() => ("a high-throughput group", "a low-latency group");
        "import.tokens" on "state.num_tokens": "a rank dispatches at most the group's maximum"
            ("EP 3.5.2", Local)
            |f| f.tokens() > f.geometry.max_tokens
                => (format!("at most {} tokens", f.geometry.max_tokens), f.tokens());
        "import.data-type" on "state.topk_idx_datatype": "routing indices are integers"
            ("EP 3.5.1", Local)
            |f| !matches!(f.data_type(), DataType::Int32 | DataType::Int64)
                => ("int32 or int64", f.data_type());
    }
}
