//! wip
#![allow(dead_code, missing_docs)]
mod agreement;
mod buckets;
mod config;
mod dist_tensor;
mod epoch;
mod fabric;
mod gate;
mod group;
mod layout;
mod member;
mod mesh;
mod native;
mod placement;
pub mod plan;
mod reshard;
mod rules;
mod runtime;
mod settings;
mod shape;
mod sharding;
mod window;

#[cfg(test)]
extern crate self as nccl_m2n;
#[cfg(test)]
#[path = "../tests/stub/mod.rs"]
mod stub;

pub use buckets::Buckets;
pub use config::{Agreement, Config};
pub use dist_tensor::{DistTensor, DistTensorMut};
pub use fabric::Fabric;
pub use group::Group;
pub use layout::Layout;
pub use mesh::{MAX_MESH_DIMS, Mesh};
pub use nccl_ext_core::{
    Backend, Buffer, Comm, DataType, DeviceBuffer, DeviceBufferMut, Element, Error, MemorySpace,
    Refused, Result, Scope, Stream, UniqueId, bf16, f16,
};
pub use placement::Placement;
pub use rules::{RuleInfo, all as rules};
pub use runtime::{Runtime, finalize_default, last_error};
pub use settings::{CopyAlgorithm, Settings};
pub use shape::{MAX_TENSOR_DIMS, Shape};
pub use sharding::Sharding;
pub use window::Window;
