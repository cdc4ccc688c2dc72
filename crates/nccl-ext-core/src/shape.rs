//! The extents of a tensor, inline.

use std::fmt;

/// The extents of a tensor in elements, outermost first: at most `N` of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape<const N: usize> {
    /// Unused ones are 1.
    extents: [usize; N],
    dims: usize,
}

impl<const N: usize> Shape<N> {
    /// Without dimensions.
    pub const EMPTY: Self = Self { extents: [1; N], dims: 0 };

    /// A shape of these extents; `None` for more than `N`.
    #[must_use]
    pub fn new(extents: &[usize]) -> Option<Self> {
        let mut shape = Self { dims: extents.len(), ..Self::EMPTY };
        shape.extents.get_mut(..extents.len())?.copy_from_slice(extents);
        Some(shape)
    }

    /// The same with one extent replaced. There is no change for a dimension beyond `N`.
    #[must_use]
    pub fn with(mut self, dim: usize, extent: usize) -> Self {
        if let Some(old) = self.extents.get_mut(dim) {
            *old = extent;
        }
        self
    }

    /// The same with one extent multiplied, at most to `usize::MAX`. There is no change for a
    /// dimension beyond `N`.
    #[must_use]
    pub fn times(self, dim: usize, factor: usize) -> Self {
        let extent = self.extents.get(dim).copied().unwrap_or(1);
        self.with(dim, extent.saturating_mul(factor))
    }

    /// All extents, 1 in place of those that the shape does not have.
    #[must_use]
    pub fn padded(&self) -> [usize; N] {
        self.extents
    }

    /// Whether there are no elements.
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

impl<const N: usize> Default for Shape<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> std::ops::Deref for Shape<N> {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        self.extents.get(..self.dims).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Debug for Shape<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// `4x2`.
impl<const N: usize> fmt::Display for Shape<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, extent) in self.iter().enumerate() {
            write!(f, "{}{extent}", if i == 0 { "" } else { "x" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn extents_are_kept_and_counted() {
        let shape = Shape::<3>::new(&[4, 2]).unwrap();
        assert_eq!((&*shape, shape.padded()), (&[4, 2][..], [4, 2, 1]));
        assert_eq!((shape.elements(), shape.is_empty()), (Some(8), false));
        assert_eq!(format!("{shape} {shape:?}"), "4x2 [4, 2]");
        assert_eq!(&*shape.with(1, 0).times(0, 3), [12, 0]);
        assert!(shape.with(1, 0).is_empty());
        assert_eq!(shape.times(9, 2), shape);
        assert_eq!(Shape::<1>::new(&[4, 2]), None);
        assert_eq!(Shape::<2>::new(&[usize::MAX, 2]).and_then(|shape| shape.elements()), None);
        assert_eq!((Shape::<2>::EMPTY.len(), Shape::<2>::EMPTY.elements()), (0, Some(1)));
    }
}
