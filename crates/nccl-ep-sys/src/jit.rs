//! What libnccl_ep compiles its kernels with, and from (EP 7.2).

use nccl_ext_core::jit::{HeaderFolder, JitSpec};

/// Where libnccl_ep looks for `nvcc` and for headers.
pub const JIT: JitSpec = JitSpec {
    library: "libnccl_ep",
    nvcc: &["NCCL_EP_JIT_NVCC", "NVCC"],
    toolkits: &["CUDA_HOME", "CUDA_PATH"],
    library_headers: HeaderFolder {
        direct: "NCCL_EP_JIT_SOURCE_DIR",
        homes: &["NCCL_EP_HOME"],
        below: "include/nccl_ep",
        files: &["common.hpp", "ep_enums.h", "config.h", "device", "../nccl_ep.h"],
    },
    nccl_headers: HeaderFolder {
        direct: "NCCL_EP_JIT_BUILD_INCLUDE_DIR",
        homes: &["NCCL_HOME"],
        below: "include",
        files: &["nccl.h", "nccl_device.h", "nccl_device"],
    },
    cuda_headers: HeaderFolder {
        direct: "NCCL_EP_JIT_CUDA_INCLUDE_DIR",
        homes: &["CUDA_HOME", "CUDA_PATH"],
        below: "include",
        files: &["cuda_runtime.h"],
    },
};
