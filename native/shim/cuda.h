/* Stand-in for the CUDA driver header: see cuda_runtime.h in this folder. */
#ifndef NCCL_EXT_SHIM_CUDA_H
#define NCCL_EXT_SHIM_CUDA_H
#include "cuda_runtime.h"
#endif
