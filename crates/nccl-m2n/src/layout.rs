//! Layouts: how one side of a reshard lays a tensor over its mesh.

use std::fmt;

use nccl_ext_core::rules::check;
use nccl_ext_core::{DataType, Error, Result};

use crate::mesh::{MAX_MESH_DIMS, Mesh};
use crate::placement::Placement;
use crate::rules::layout::{self, LayoutFacts};
use crate::shape::{MAX_TENSOR_DIMS, Shape};
use crate::sharding::Sharding;

/// One side of a reshard without its memory: mesh, placements, the shape of each rank's tile and
/// the element type.
///
/// `nccl_ep::Layout` is another thing: it says how the rows that a rank receives are ordered.
///
/// Every rank gives both sides' layouts, also where it holds no part of them: the library computes
/// who sends what to whom from them, and so does [`Plan`](crate::plan::Plan). All tiles of a side
/// are equal, dense and row-major. A tensor can be described from a tile's shape
/// ([`new`](Self::new)), from the whole tensor's ([`from_global`](Self::from_global)), or from the
/// other side ([`on`](Self::on)).
///
/// ```
/// use nccl_m2n::{DataType, Layout, Mesh, Placement::{Replicate, Shard}};
///
/// // A [4096, 1024] matrix: rows over four trainers, columns over two generators.
/// let trainers = Layout::from_global(
///     Mesh::new(&[4], 0)?, &[Shard(0)], &[4096, 1024], DataType::Bfloat16)?;
/// let generators = trainers.on(Mesh::new(&[2], 4)?, &[Shard(-1)])?;
/// assert_eq!(&trainers.local_shape()[..], &[1024, 1024]);
/// assert_eq!(&generators.local_shape()[..], &[4096, 512]);
/// assert_eq!(generators.global_shape(), trainers.global_shape());
///
/// let uneven = trainers.on(Mesh::new(&[3], 4)?, &[Shard(0)]).unwrap_err();
/// assert!(uneven.to_string().starts_with(
///     "dimension 0 of 4096 elements does not divide over 3 shards; move 0..4095"));
/// # Ok::<(), nccl_m2n::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "SerializedLayout", into = "SerializedLayout"))]
pub struct Layout {
    mesh: Mesh,
    /// Resolved; padded with `Replicate`.
    placements: [Placement; MAX_MESH_DIMS],
    local_shape: Shape,
    data_type: DataType,
}

impl Layout {
    /// A layout whose tiles have this shape, in elements.
    ///
    /// `placements` has one entry for each dimension of the mesh.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a rule of a layout is broken (`layout.*` in
    /// [`rules`](crate::rules)).
    pub fn new(
        mesh: Mesh,
        placements: &[Placement],
        local_shape: &[usize],
        data_type: DataType,
    ) -> Result<Self> {
        let facts = LayoutFacts { mesh: &mesh, placements, local_shape, data_type };
        check(layout::RULES, |broken| broken(&facts))?;
        let mut resolved = [Placement::Replicate; MAX_MESH_DIMS];
        for (to, from) in resolved.iter_mut().zip(placements) {
            *to = from.resolved(local_shape.len()).unwrap_or(Placement::Replicate);
        }
        let local_shape = Shape::new(local_shape).unwrap_or(Shape::EMPTY);
        Ok(Self { mesh, placements: resolved, local_shape, data_type })
    }

    /// A layout of a whole tensor of this shape, in elements.
    ///
    /// # Errors
    /// [`Error::Uneven`] when the sharded dimension does not divide over the ranks, else as
    /// [`new`](Self::new).
    pub fn from_global(
        mesh: Mesh,
        placements: &[Placement],
        global_shape: &[usize],
        data_type: DataType,
    ) -> Result<Self> {
        // Divided as far as the placements make sense; whether they do is for `new` to say.
        let mut local = Shape::new(global_shape).unwrap_or(Shape::EMPTY);
        let ndims = global_shape.len();
        let parts = placements.iter().zip(mesh.padded_dims());
        let parts = parts.filter_map(|(placement, parts)| match placement.resolved(ndims)? {
            Placement::Shard(dim) => Some((usize::try_from(dim).ok()?, parts)),
            Placement::Replicate => None,
        });
        let mut uneven = Ok(());
        for (dim, parts) in parts {
            let size = global_shape.get(dim).copied().unwrap_or(0);
            if !size.is_multiple_of(parts) && uneven.is_ok() {
                uneven = Err(Error::Uneven { dim, size, parts });
            }
            local = local.with(dim, size / parts);
        }
        let shape = if ndims <= MAX_TENSOR_DIMS { &*local } else { global_shape };
        let layout = Self::new(mesh, placements, shape, data_type)?;
        uneven.map(|()| layout)
    }

    /// The same tensor on another mesh: the other side of a reshard.
    ///
    /// # Errors
    /// As [`from_global`](Self::from_global).
    pub fn on(&self, mesh: Mesh, placements: &[Placement]) -> Result<Self> {
        Self::from_global(mesh, placements, &self.global_shape(), self.data_type)
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// One placement for each dimension of the mesh, counted from the front.
    #[must_use]
    pub fn placements(&self) -> &[Placement] {
        &self.placements[..self.mesh.ndims()]
    }

    /// The shape of a rank's tile.
    #[must_use]
    pub fn local_shape(&self) -> Shape {
        self.local_shape
    }

    /// The element type.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Who holds what, in the library's normal form.
    #[must_use]
    pub fn sharding(&self) -> Sharding {
        Sharding::new(&self.mesh, self.placements)
    }

    /// The shape of the whole tensor.
    #[must_use]
    pub fn global_shape(&self) -> Shape {
        let sharding = self.sharding();
        self.local_shape.times(sharding.dim, sharding.shards)
    }

    /// Bytes of a rank's tile.
    #[must_use]
    pub fn local_bytes(&self) -> usize {
        self.local_shape.iter().product::<usize>() * self.data_type.size()
    }

    /// Bytes of the whole tensor, once.
    #[must_use]
    pub fn global_bytes(&self) -> usize {
        self.local_bytes() * self.sharding().shards
    }

    /// Whether a rank holds a tile.
    #[must_use]
    pub fn contains(&self, rank: usize) -> bool {
        self.mesh.contains(rank)
    }
}

/// Tersely, as the vendor's test tables: `{2,2}@4 [R,S1] 4x2 bf16`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [", self.mesh)?;
        for (i, placement) in self.placements().iter().enumerate() {
            write!(f, "{}{placement}", if i == 0 { "" } else { "," })?;
        }
        write!(f, "] {} {}", self.local_shape, self.data_type)
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layout({self})")
    }
}

/// The serialised form.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SerializedLayout {
    mesh: Mesh,
    placements: Vec<Placement>,
    local_shape: Vec<usize>,
    data_type: DataType,
}

#[cfg(feature = "serde")]
impl From<Layout> for SerializedLayout {
    fn from(layout: Layout) -> Self {
        Self {
            mesh: layout.mesh,
            placements: layout.placements().to_vec(),
            local_shape: layout.local_shape.to_vec(),
            data_type: layout.data_type,
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<SerializedLayout> for Layout {
    type Error = Error;

    fn try_from(serialized: SerializedLayout) -> Result<Self> {
        Self::new(
            serialized.mesh,
            &serialized.placements,
            &serialized.local_shape,
            serialized.data_type,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Placement::{Replicate, Shard};
    use super::*;

    fn mesh(dims: &[usize]) -> Mesh {
        Mesh::new(dims, 0).unwrap()
    }

    fn bytes(dims: &[usize], placements: &[Placement], shape: &[usize]) -> Result<Layout> {
        Layout::new(mesh(dims), placements, shape, DataType::Uint8)
    }

    #[test]
    fn global_and_local_shapes_derive_from_each_other() {
        let layout = bytes(&[2, 3], &[Replicate, Shard(1)], &[5, 2, 7]).unwrap();
        assert_eq!(&layout.global_shape()[..], &[5, 6, 7]);
        assert_eq!((layout.local_bytes(), layout.global_bytes()), (70, 210));
        let again = Layout::from_global(
            mesh(&[2, 3]),
            &[Replicate, Shard(-2)],
            &[5, 6, 7],
            DataType::Uint8,
        );
        assert_eq!(again.unwrap(), layout);
        assert_eq!(layout.to_string(), "{2,3}@0 [R,S1] 5x2x7 uint8");
        let copies = layout.on(mesh(&[4]), &[Replicate]).unwrap();
        assert_eq!(&copies.local_shape()[..], &[5, 6, 7]);
    }

    /// Cases M2 and M11.
    #[test]
    fn dimensions_that_do_not_divide_are_uneven() {
        let uneven = |parts, size| {
            let shape = [size, 10];
            let made = Layout::from_global(mesh(&[parts]), &[Shard(0)], &shape, DataType::Float32);
            match made {
                Err(Error::Uneven { dim, size, parts }) => (dim, size, parts),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(uneven(4, 5), (0, 5, 4));
        assert_eq!(uneven(3, 4096), (0, 4096, 3));
        assert_eq!(uneven(2, 4095), (0, 4095, 2));
    }

    #[test]
    fn missing_placements_count_where_they_cannot_matter() {
        assert!(bytes(&[4, 1], &[Shard(0)], &[1]).is_ok());
        assert!(bytes(&[4], &[Shard(0), Replicate], &[1]).is_ok());
        let message = |result: Result<Layout>| result.unwrap_err().to_string();
        assert!(message(bytes(&[2, 2], &[Shard(0)], &[1])).contains("one placement for each"));
        assert!(message(bytes(&[4], &[Replicate, Shard(0)], &[1])).contains("one placement"));
        assert!(message(bytes(&[4], &[], &[1])).contains("expected 1, found []"));
    }

    /// Case M6.
    #[test]
    fn two_sharded_dimensions_come_with_the_calls_to_make_instead() {
        let message = bytes(&[4, 2], &[Shard(0), Shard(1)], &[2, 4]).unwrap_err().to_string();
        assert!(
            message.contains(
                "make 4 call(s) instead, one for each block of dimension 0: block i lies on mesh \
                 {2} from rank 0 + 2 * i with Shard(1)"
            ),
            "{message}"
        );
    }

    #[test]
    fn sizes_must_fit() {
        let message = |shape: &[usize], data_type| {
            Layout::new(mesh(&[2]), &[Shard(0)], shape, data_type).unwrap_err().to_string()
        };
        assert!(message(&[1 << 63], DataType::Uint8).contains("global extent"));
        assert!(message(&[1 << 62], DataType::Float32).contains("bytes of a tile"));
        assert!(message(&[1 << 62], DataType::Float16).contains("bytes of the whole tensor"));
        assert!(message(&[1], DataType::Float4x2).contains("type that libnccl_m2n moves"));
        assert!(message(&[], DataType::Uint8).contains("one to three"));
        assert!(message(&[1; 4], DataType::Uint8).contains("one to three"));
        assert!(bytes(&[2], &[Shard(1)], &[3]).unwrap_err().to_string().contains("-1 to 0"));
        assert!(bytes(&[2], &[Shard(0)], &[0]).is_ok());
    }
}
