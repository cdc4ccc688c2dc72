#!/usr/bin/env bash
# The demo over the real libraries, on a machine with two NVIDIA GPUs:
#
#   smoke.sh NCCL_EXT OUT [PEER]
#
# NCCL_EXT is a release build of the tool, OUT a folder for the results, PEER a benchmark of the
# vendor's Python package (`PEER ll ht htem`, tokens a rank in T). NCCL_LIBRARY and NCCL_EP_LIBRARY
# name the libraries; nvcc, NCCL_HOME and NCCL_EP_HOME are for the library's run-time compiler.
#
# STEPS in the environment picks steps, `one recorded 128 4096 exception peer` by default. Each
# leaves OUT/STEP.json (OUT/peer-*.txt) and replaces what an earlier run left; a table of all that
# lies in OUT is printed at the end. The exit code is 0 when every step of this run passed.
set -u
program=$1 out=$2 peer=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
failed=0

# demo NAME ARGUMENTS..: the demo on GPUs, its report as JSON.
demo() {
    local name=$1 start=$SECONDS
    shift
    timeout 320 "$program" demo --backend native --timeout 280 --json "$@" \
        >"$out/$name.json" 2>"$out/$name.err"
    local code=$?
    echo "$name: exit code $code after $((SECONDS - start)) s" >&2
    if [ $code != 0 ]; then
        failed=1
        tail -n 25 "$out/$name.err" >&2
        # A failed verdict has its problems in the report.
        grep -A5 '"problems": \[$' "$out/$name.json" >&2
    fi
    return $code
}

for step in ${STEPS:-one recorded 128 4096 exception peer}; do
    case $step in
    one) demo one --ranks 1 --rounds 3 ;;
    recorded) demo recorded --ranks 2 --rounds 3 ;;
    128 | 4096)
        rounds=3
        [ "$step" = 4096 ] && rounds=1
        # Low-latency expert-major takes 30 GB of the CPU backend at 4096 tokens.
        demo "$step" --generate "tokens=$step,hidden=7168,topk=8,experts=256" --ranks 2 \
            --rounds $rounds --cpu-memory 32
        ;;
    exception)
        exception=(--ranks 1 --rounds 1 --pairs 'HT flat,LL expert-major')
        if ! demo exception "${exception[@]}" --provoke-exception=same-thread; then
            demo exception-other-thread "${exception[@]}" --provoke-exception=other-thread
        fi
        ;;
    peer)
        [ -n "$peer" ] || continue
        for tokens in 128 4096; do
            start=$SECONDS
            T=$tokens timeout 150 python3 "$peer" ll ht htem >"$out/peer-$tokens.txt" 2>&1 || failed=1
            echo "peer, $tokens tokens: $((SECONDS - start)) s" >&2
        done
        ;;
    *) echo "smoke.sh: no step '$step'" >&2 && exit 2 ;;
    esac
done

{
    date -u '+Run on %Y-%m-%d.'
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c |
        sed 's/^ *\([0-9]*\) \(.*\), \(.*\)/\1 x \2, driver \3./'
    nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/CUDA compiler \1./p'
    python3 "$here/table.py" "$out"
} | tee "$out/table.md"
exit $failed
