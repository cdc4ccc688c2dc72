//! Rules of making one tensor over a buffer (EP 1.6).

#[cfg(test)]
pub(super) mod walk;

use nccl_ext_core::{DataType, rules};

use crate::view::{MAX_DIMS, Shape};

/// A shape that is to lie in a buffer.
pub(crate) struct ShapeFacts<'a> {
    pub(crate) extents: &'a [usize],
    pub(crate) data_type: DataType,
    /// The buffer's size.
    pub(crate) buffer_bytes: usize,
    /// Whether the buffer has no memory.
    pub(crate) null: bool,
}

impl ShapeFacts<'_> {
    fn shape(&self) -> Option<Shape> {
        Shape::new(self.extents).filter(|_| !self.extents.is_empty())
    }

    /// The tensor's size, unless it overflows.
    fn bytes(&self) -> Option<usize> {
        self.shape()?.elements()?.checked_mul(self.data_type.size())
    }

    fn found(&self) -> String {
        format!("{:?} of {}", self.extents, self.data_type)
    }
}

rules! {
    /// Checked whenever a tensor is made.
    SHAPE over ShapeFacts {
        "tensor.dimensions" on "shape": "a tensor has one to four dimensions" ("EP 1.6", Local)
            |f| f.shape().is_none() => (format!("1 to {MAX_DIMS} extents"), f.found());
        "tensor.inside" on "shape": "a tensor lies inside its buffer" ("EP 1.6", Local)
            |f| f.bytes().is_none_or(|bytes| bytes > f.buffer_bytes)
                => (format!("at most {} bytes", f.buffer_bytes), f.found());
        "tensor.memory" on "shape": "a tensor with elements has memory" ("EP 1.6", Local)
            |f| f.null && f.bytes() != Some(0) => ("a pointer that is not NULL", f.found());
    }
}

/// A tensor whose bytes are to be read as another type.
pub(crate) struct DataTypeFacts {
    pub(crate) from: DataType,
    pub(crate) to: DataType,
}

rules! {
    /// Checked by [`Tensor::with_data_type`](crate::Tensor::with_data_type).
    DATA_TYPE over plain DataTypeFacts {
        "tensor.data-type" on "data_type": "a tensor's bytes are read as a type of the same size"
            ("EP 1.6", Local)
            |f| f.to.size() != f.from.size()
                => (format!("a type of {} bytes", f.from.size()),
                    format!("{} of {}", f.to, f.to.size()));
    }
}
