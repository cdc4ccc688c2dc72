//! The extents of a tensor.

/// Most dimensions a tensor has.
#[doc(alias = "NCCL_RESHARD_MAX_TENSOR_DIMS")]
pub const MAX_TENSOR_DIMS: usize = 3;

/// The extents of a tensor in elements, outermost first; up to [`MAX_TENSOR_DIMS`]. The vendor
/// writes them as `Display` does: `4x2`.
pub type Shape = nccl_ext_core::Shape<MAX_TENSOR_DIMS>;
