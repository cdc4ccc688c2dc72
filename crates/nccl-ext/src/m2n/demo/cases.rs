//! How trainers and generators lay tensors out.

use nccl_m2n::{Layout, MAX_TENSOR_DIMS, Mesh, Placement, Result};
use serde::Serialize;

use super::model::{Model, Tensor};
use super::slices::Cut;

/// Ranks of the communicator: four trainers, then four generators.
pub(super) const RANKS: usize = 8;
const TRAINERS: usize = 4;

/// One side: a mesh of four ranks of which one dimension cuts a dimension of the tensor.
#[derive(Debug, Clone, Copy)]
struct Form {
    mesh: &'static [usize],
    start: usize,
    /// The dimension of the mesh that cuts.
    axis: usize,
    /// The dimension of the tensor that is cut.
    dim: usize,
    /// Which block the mesh's n-th rank has.
    part: fn(usize) -> usize,
}

/// Two forms between which tensors go.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    source: Form,
    destination: Form,
}

const TP4: Form = Form { mesh: &[4], start: 0, axis: 0, dim: 0, part: |rank| rank };
const TP2_DP2: Form =
    Form { mesh: &[2, 2], start: TRAINERS, axis: 1, dim: 0, part: |rank| rank % 2 };
const COLUMNS: Form = Form { start: TRAINERS, dim: 1, ..TP4 };

pub(super) const CASES: [Case; 2] = [
    Case {
        name: "TP4 to TP2 x DP2",
        what: "dimension 0 over four trainers; over two generators, with a copy on two more",
        source: TP4,
        destination: TP2_DP2,
    },
    Case {
        name: "S(0) to S(1)",
        what: "dimension 0 over four trainers, dimension 1 over four generators",
        source: TP4,
        destination: COLUMNS,
    },
];

/// A tensor on one side.
pub(super) struct Side {
    pub(super) layout: Layout,
    form: Form,
    /// Whether every rank has all of it, as the form cannot cut it.
    pub(super) whole: bool,
}

impl Side {
    /// What a rank of the side holds.
    pub(super) fn cut(&self, rank: usize) -> Option<Cut> {
        let Form { mesh, start, axis, dim, part } = self.form;
        let cut = Cut { dim, parts: mesh[axis], part: part(rank - start) };
        (!self.whole).then_some(cut)
    }
}

impl Form {
    fn side(self, tensor: &Tensor, data_type: nccl_m2n::DataType) -> Result<Side> {
        let divides = |size: &usize| size.is_multiple_of(self.mesh[self.axis]);
        let whole = !tensor.shape.get(self.dim).is_some_and(divides);
        let mut placements = vec![Placement::Replicate; self.mesh.len()];
        if !whole {
            placements[self.axis] = Placement::Shard(self.dim as i32);
        }
        let mesh = Mesh::new(self.mesh, self.start)?;
        let layout = Layout::from_global(mesh, &placements, &tensor.shape, data_type)?;
        Ok(Side { layout, form: self, whole })
    }
}

/// A tensor that goes from one form to the other.
pub(super) struct Work<'a> {
    pub(super) tensor: &'a Tensor,
    pub(super) source: Side,
    pub(super) destination: Side,
}

/// A tensor that stays, and why.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Skipped {
    pub(super) name: String,
    pub(super) reason: String,
}

impl Case {
    /// # Errors
    /// What the API says against a layout.
    pub(super) fn works<'a>(&self, model: &'a Model) -> Result<(Vec<Work<'a>>, Vec<Skipped>)> {
        let (mut works, mut skipped) = (Vec::new(), Vec::new());
        for tensor in &model.tensors {
            let ndims = tensor.shape.len();
            let reason = if tensor.data.is_empty() {
                "it has no elements".into()
            } else if !(1..=MAX_TENSOR_DIMS).contains(&ndims) {
                format!("it has {ndims} dimensions, and the library moves 1 to {MAX_TENSOR_DIMS}")
            } else if let Some(data_type) = tensor.data_type {
                works.push(Work {
                    tensor,
                    source: self.source.side(tensor, data_type)?,
                    destination: self.destination.side(tensor, data_type)?,
                });
                continue;
            } else {
                format!("the library has no type {}", tensor.file_type)
            };
            skipped.push(Skipped { name: tensor.name.clone(), reason });
        }
        Ok((works, skipped))
    }
}
