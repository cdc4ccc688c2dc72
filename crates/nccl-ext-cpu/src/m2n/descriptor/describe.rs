//! From the caller's descriptors to normal form: checks 1 to 25 of M2N 2.1, in that order.
//!
//! All of them are functions of the descriptors, so they fail before any rank meets another.

use core::ffi::c_int;
use std::fmt::Display;

use nccl_ext_core::DataType;
use nccl_m2n_sys::{NCCL_M2N_API_VERSION, NCCL_RESHARD_REPLICATE, ncclDistTensor_t, ncclMesh_t};

use super::raw::{Header, MESH_DIMS, RawMesh, RawTensor, TENSOR_DIMS};
use super::transfer::{Buffers, Layout, Side, Transfer};
use crate::m2n::fault::{BrokenRule, RESHARD, require};

/// What the checks find in a descriptor, all of it there.
struct Parts {
    shape: [usize; TENSOR_DIMS],
    mesh: RawMesh,
    dims: [c_int; MESH_DIMS],
    placements: [c_int; MESH_DIMS],
}

/// The transfer that two descriptors describe. `api` is the function that texts name.
pub(crate) fn describe(
    api: &str,
    has_comm: bool,
    src: Option<&RawTensor>,
    dst: Option<&RawTensor>,
) -> Result<Transfer, BrokenRule> {
    require(has_comm, || null(api, "comm"))?;
    let (Some(src), Some(dst)) = (src, dst) else {
        let which = if src.is_none() { "src" } else { "dst" };
        return Err(BrokenRule::new(
            api,
            which,
            "every rank passes both tensor descriptors",
            "a descriptor",
            "NULL",
        ));
    };
    let src_parts = parts(api, "src", src)?;
    let dst_parts = parts(api, "dst", dst)?;
    let src_mesh = mesh("src", &src_parts)?;
    let dst_mesh = mesh("dst", &dst_parts)?;
    require(src.ndims == dst.ndims, || {
        let rule = "both sides are of one tensor";
        BrokenRule::new(api, "dst->ndims", rule, src.ndims, dst.ndims)
    })?;
    require(src.dtype == dst.dtype, || {
        let rule = "both sides have one element type";
        BrokenRule::new(api, "dst->dtype", rule, src.dtype.0, dst.dtype.0)
    })?;
    // 4-bit floats have no place here: an element is whole bytes (M2N 1.5).
    let dtype = DataType::from_raw(src.dtype).filter(|&dtype| dtype != DataType::Float4x2);
    let dtype = dtype.ok_or_else(|| {
        let rule = "elements are of a type with whole bytes";
        BrokenRule::new(api, "dtype", rule, "0 to 11", src.dtype.0.cast_signed())
    })?;
    let ndims = src.ndims.unsigned_abs() as usize;
    let layout = Layout {
        src: side(api, "src", ndims, src_mesh, &src_parts)?,
        dst: side(api, "dst", ndims, dst_mesh, &dst_parts)?,
        ndims,
        dtype,
    };
    Ok(Transfer { layout, buffers: Buffers { src: src.data, dst: dst.data } })
}

/// Checks 3 to 12 on one side.
fn parts(api: &str, side: &str, tensor: &RawTensor) -> Result<Parts, BrokenRule> {
    let arrow = |field: &str| format!("{side}->{field}");
    header::<ncclDistTensor_t>(api, &format!("{side} descriptor"), tensor.header)?;
    let ndims = tensor.ndims;
    in_range(api, &arrow("ndims"), ndims, TENSOR_DIMS)?;
    let shape = tensor.shape.ok_or_else(|| null(api, arrow("localShape")))?;
    let mesh = tensor.mesh.ok_or_else(|| {
        let rule = "every rank passes both meshes";
        BrokenRule::new(api, arrow("mesh"), rule, "a mesh", "NULL")
    })?;
    header::<ncclMesh_t>(api, &format!("{side} mesh descriptor"), mesh.header)?;
    in_range(api, &arrow("mesh->ndims"), mesh.ndims, MESH_DIMS)?;
    let dims = mesh.dims.ok_or_else(|| null(api, arrow("mesh->dims")))?;
    let placements = tensor.placements.ok_or_else(|| null(api, arrow("placements")))?;
    Ok(Parts { shape, mesh, dims, placements })
}

/// The head of a structure: larger is fine, another version is not (M2N 1.4).
fn header<T>(api: &str, name: &str, Header { size, version }: Header) -> Result<(), BrokenRule> {
    let needed = size_of::<T>();
    require(size >= needed, || {
        let rule = "the size is at least that of this library's structure";
        BrokenRule::new(api, format_args!("{name} size"), rule, needed, size)
    })?;
    require(version == NCCL_M2N_API_VERSION, || {
        let rule = "the ABI version is this library's";
        BrokenRule::new(api, format_args!("{name} version"), rule, NCCL_M2N_API_VERSION, version)
    })
}

fn in_range(api: &str, name: &str, count: c_int, most: usize) -> Result<(), BrokenRule> {
    let holds = usize::try_from(count).is_ok_and(|count| (1..=most).contains(&count));
    require(holds, || {
        let expected = format!("[1, {most}]");
        BrokenRule::new(api, name, "the number of axes is in range", expected, count)
    })
}

fn null(api: &str, name: impl Display) -> BrokenRule {
    BrokenRule::new(api, name, "the pointer is not NULL", "a pointer", "NULL")
}

/// A mesh after checks 14 to 17: where it starts, and its extents.
struct Mesh {
    start: usize,
    dims: [usize; MESH_DIMS],
}

fn mesh(side: &str, parts: &Parts) -> Result<Mesh, BrokenRule> {
    let start = parts.mesh.start;
    let start = usize::try_from(start).map_err(|_| {
        let rule = "a rank is not negative";
        let found = format!("startRank={start}");
        BrokenRule::new(RESHARD, format_args!("{side} mesh startRank"), rule, "0 or more", found)
    })?;
    let axes = parts.mesh.ndims.unsigned_abs() as usize;
    // A mesh of one axis has a second one of length 1 (M2N 2.2).
    let mut dims = [1; MESH_DIMS];
    for (i, &dim) in parts.dims.iter().take(axes).enumerate() {
        let positive = usize::try_from(dim).ok().filter(|&dim| dim > 0);
        dims[i] = positive.ok_or_else(|| {
            let rule = "every axis of a mesh has ranks";
            let found = format!("dims[{i}]={dim}");
            let argument = format!("{side} mesh dims");
            BrokenRule::new(RESHARD, argument, rule, "a positive number", found)
        })?;
    }
    let most = c_int::MAX.unsigned_abs() as usize;
    let product = dims[0] as u64 * dims[1] as u64;
    let size = usize::try_from(product).ok().filter(|&size| size <= most).ok_or_else(|| {
        let rule = "the mesh is within the range of ranks";
        BrokenRule::new(RESHARD, format_args!("{side} mesh size"), rule, "at most INT_MAX", product)
    })?;
    require(size <= most - start, || {
        let found = start as u64 + size as u64;
        let rule = "the interval does not overflow the range of ranks";
        BrokenRule::new(
            RESHARD,
            format_args!("{side} mesh interval"),
            rule,
            "INT_MAX or less",
            found,
        )
    })?;
    Ok(Mesh { start, dims })
}

/// Checks 22 to 24 on one side, after normalisation.
fn side(
    api: &str,
    name: &str,
    ndims: usize,
    mesh: Mesh,
    parts: &Parts,
) -> Result<Side, BrokenRule> {
    let Mesh { start, mut dims } = mesh;
    let mut placements = parts.placements;
    if parts.mesh.ndims == 1 {
        placements[1] = NCCL_RESHARD_REPLICATE;
    }
    if placements == [NCCL_RESHARD_REPLICATE; MESH_DIMS] {
        // Replicas of one shard that holds everything.
        dims = [dims[0] * dims[1], 1];
        placements = [NCCL_RESHARD_REPLICATE, 0];
    }
    let mut shard = None;
    let mut count = 0;
    for (axis, &placement) in placements.iter().enumerate() {
        if placement == NCCL_RESHARD_REPLICATE {
            continue;
        }
        let dim = usize::try_from(placement).map_err(|_| {
            let argument = format!("{name}->placements[{axis}]");
            let rule = "a placement is REPLICATE (-1) or SHARD of an axis of the tensor";
            let found = format!("placements[{axis}]={placement}");
            BrokenRule::new(api, argument, rule, "-1 or more", found)
        })?;
        require(dim < ndims, || {
            let argument = format!("{name}->placements[{axis}]");
            let expected = format!("an axis of a tensor of rank {ndims}");
            let found = format!("SHARD({dim})");
            BrokenRule::new(api, argument, "the sharded axis exists", expected, found)
        })?;
        shard.get_or_insert((axis, dim));
        count += 1;
    }
    let shard = shard.filter(|_| count == 1);
    let (shard_axis, shard_dim) = shard.ok_or_else(|| {
        let argument = format!("{name}->placements");
        BrokenRule::new(api, argument, "one axis of the mesh is SHARD, in normal form", 1, count)
    })?;
    let mut shape = parts.shape;
    shape[ndims..].fill(0);
    Ok(Side { start, dims, shard_axis, shard_dim, shape })
}
