#!/usr/bin/env bash
# Expert ids on one NVIDIA GPU:
#
#   ids.sh IDS_ON_GPU
#
# IDS_ON_GPU is a release build of the example `ids_on_gpu`. First the kernel alone: against the loop that
# says what it does, and what it costs. Then cases A6 to A8 between two ranks that share the GPU.
# NCCL_LIBRARY and NCCL_EP_LIBRARY name the libraries; nvcc, NCCL_HOME and NCCL_EP_HOME are for the
# library's run-time compiler. The exit code is 0 when everything is right.
set -u
program=$1
failed=0
timeout 100 "$program" kernel || failed=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export NCCL_MULTI_RANK_GPU_ENABLE=1
timeout 300 "$program" rank 1 "$folder" &
peer=$!
timeout 300 "$program" rank 0 "$folder" || failed=1
wait "$peer" || failed=1
exit $failed
