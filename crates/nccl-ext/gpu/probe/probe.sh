#!/usr/bin/env bash
# Builds probe.cu and runs cases of it with two ranks on one GPU:
#
#   probe.sh [CASE..]
#
# NCCL_HOME holds NCCL (lib/, include/), NCCL_EP_LIBRARY names libnccl_ep, NCCL_EP_HOME holds its headers
# (include/); nvcc is on the PATH. UNTIL_TRAP=1 waits for low latency's time-out in `missing-ll..`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
# The linker wants names that end in .so.
ln -s "$NCCL_HOME/lib/libnccl.so.2" "$build/libnccl.so"
ln -s "$NCCL_EP_LIBRARY" "$build/libnccl_ep.so"
ln -s "$NCCL_EP_LIBRARY" "$build/libnccl_ep.so.0"
env -u LD_PRELOAD nvcc -std=c++17 -O1 -arch=native -I"$NCCL_HOME/include" -I"$NCCL_EP_HOME/include" \
    -L"$build" -lnccl -lnccl_ep -Xlinker -rpath="$NCCL_HOME/lib:$build" -o "$build/probe" "$here/probe.cu"

export NCCL_MULTI_RANK_GPU_ENABLE=1
cases=(graph-ll graph-ll-global graph-ht graph-ht-update graph-ht-update-global
    missing-ll missing-ht missing-ll-abort missing-ll-killed-abort missing-ht-abort
    missing-nccl-abort missing-nccl-killed-abort)
for case in "${@:-${cases[@]}}"; do
    start=$SECONDS
    folder=$(mktemp -d "$build/ranks.XXXX")
    pids=()
    for rank in 0 1; do
        timeout -s KILL 170 "$build/probe" $rank 2 "$folder" "$case" & pids+=($!)
    done
    codes=()
    for pid in "${pids[@]}"; do
        code=0; wait "$pid" || code=$?
        codes+=("$code")
    done
    echo "$case: exit codes ${codes[*]}, $((SECONDS - start)) s"
done
