//! The extents of a tensor, inline.

use std::fmt;

/// Most dimensions a tensor has.
#[doc(alias = "NCCL_RESHARD_MAX_TENSOR_DIMS")]
pub const MAX_TENSOR_DIMS: usize = 3;

/// The extents of a tensor in elements, outermost first; up to [`MAX_TENSOR_DIMS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Unused ones are 1.
    extents: [usize; MAX_TENSOR_DIMS],
    ndims: usize,
}

impl Shape {
    /// Without dimensions; no tensor has it.
    pub(crate) const EMPTY: Self = Self { extents: [1; MAX_TENSOR_DIMS], ndims: 0 };

    /// A shape of these extents; `None` for more than [`MAX_TENSOR_DIMS`].
    pub(crate) fn new(extents: &[usize]) -> Option<Self> {
        let mut shape = Self { extents: [1; MAX_TENSOR_DIMS], ndims: extents.len() };
        shape.extents.get_mut(..extents.len())?.copy_from_slice(extents);
        Some(shape)
    }

    /// The same with one extent multiplied. The caller knows that the product fits.
    pub(crate) fn times(mut self, dim: usize, factor: usize) -> Self {
        if let Some(extent) = self.extents.get_mut(dim) {
            *extent = extent.saturating_mul(factor);
        }
        self
    }

    /// The same with one extent replaced.
    pub(crate) fn with(mut self, dim: usize, size: usize) -> Self {
        if let Some(extent) = self.extents.get_mut(dim) {
            *extent = size;
        }
        self
    }

    /// All extents, padded with 1.
    pub(crate) fn padded(&self) -> [usize; MAX_TENSOR_DIMS] {
        self.extents
    }

    /// Whether the tensor has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contains(&0)
    }

    /// Number of elements, unless it overflows.
    #[must_use]
    pub fn elements(&self) -> Option<usize> {
        self.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))
    }
}

impl std::ops::Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        self.extents.get(..self.ndims).unwrap_or_default()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// As the vendor writes them: `4x2`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, extent) in self.iter().enumerate() {
            write!(f, "{}{extent}", if i == 0 { "" } else { "x" })?;
        }
        Ok(())
    }
}
