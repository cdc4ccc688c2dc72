//! Backends made of stub tables: every call succeeds, does nothing, and is recorded for the calling
//! thread. With them a test sees what reaches the native libraries, and what does not.

mod calls;
mod driver;
pub mod ep;
mod kernels;
pub mod m2n;
mod nccl;
mod order;

pub use calls::{fail_next, take_calls};
pub use driver::set_capturing;
pub use kernels::{Launch, take_launch};
pub use nccl::{Peers, comm_on, set_domain, set_network, set_peers};
pub use order::{OrderCall, set_trapped, take_order};

use nccl_ext_core::backend::BackendBuilder;
use nccl_ext_core::driver::DriverApi;
use nccl_ext_core::{Backend, MemorySpace};

/// NCCL and the driver, whose tensors live in `memory`.
fn builder(memory: MemorySpace) -> BackendBuilder {
    Backend::builder("stub", memory).nccl(nccl::TABLE).driver(DRIVER)
}

/// The driver's functions, to be edited for a backend that has fewer of them.
pub const DRIVER: DriverApi = driver::TABLE;
