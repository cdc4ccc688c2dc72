/* Stand-in for CUDA's half-precision header: the NCCL headers include it, and
 * no C declaration that is bound here uses a name of it. */
#ifndef NCCL_EXT_SHIM_CUDA_FP16_H
#define NCCL_EXT_SHIM_CUDA_FP16_H
#endif
