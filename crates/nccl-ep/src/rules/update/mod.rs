//! Rules of an update that are about more than one tensor's shape (EP 3.5).

pub(super) mod tensors;
#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{DataType, rules};

use crate::geometry::Geometry;
use crate::view::View;

/// An update whose tensors fit their rows.
pub(crate) struct UpdateFacts<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) topk_idx: &'a View,
    /// Counters that one kernel writes, so that they must share a type.
    pub(crate) counters: [Option<&'a View>; 3],
}

impl UpdateFacts<'_> {
    fn counter_types(&self) -> impl Iterator<Item = DataType> {
        self.counters.iter().flatten().map(|view| view.data_type())
    }

    fn counter_types_differ(&self) -> bool {
        let mut types = self.counter_types();
        let first = types.next();
        types.any(|other| Some(other) != first)
    }

    fn counter_type_names(&self) -> String {
        self.counter_types().map(DataType::name).collect::<Vec<_>>().join(", ")
    }
}

rules! {
    /// Checked by [`Handle::update`](crate::Handle::update), after the tensors.
    RULES over UpdateFacts {
        "update.tokens" on "topk_idx": "a rank dispatches at most the group's maximum"
            ("EP 3.5.2, 4.2", Local)
            |f| f.topk_idx.rows() > f.geometry.max_tokens
                => (format!("at most {} tokens", f.geometry.max_tokens), f.topk_idx.rows());
        "update.counter-types" on "layout_info":
            "the counters that one kernel writes have one integer type" ("EP 3.5.2", Local)
            |f| f.counter_types_differ() => ("one of int32 and int64", f.counter_type_names());
    }
}
