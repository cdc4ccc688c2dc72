/* Stand-in for the CUDA runtime header, read by `cargo xtask codegen` alone.
 * It declares the few names that the NCCL headers use, so that bindings are
 * generated on machines without the CUDA toolkit. */
#ifndef NCCL_EXT_SHIM_CUDA_RUNTIME_H
#define NCCL_EXT_SHIM_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

typedef struct CUstream_st *cudaStream_t;

/* Only values that a caller of these bindings returns or compares. The type is
 * open: any other integer stays representable on the Rust side. */
typedef enum {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2
} cudaError_t;

#endif
