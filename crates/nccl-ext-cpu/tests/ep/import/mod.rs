//! Importing prepared handles: what they do, and which memory is refused.

mod damage;
mod going_on;
mod refusals;

use nccl_ep_sys::ncclEpOverflowPolicy_t;
use nccl_ext_core::DataType;
use nccl_ext_test::cpu::ep::import::ImportState;

const DROP: ncclEpOverflowPolicy_t = ncclEpOverflowPolicy_t::NCCL_EP_OVERFLOW_DROP;

/// What an import of G2 must be told.
const G2_STATE: ImportState = ImportState { tokens: 4, topk: 2, id_type: DataType::Int64 };
