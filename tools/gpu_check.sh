#!/bin/sh
# All that needs an accelerator, in one command of at most 8 minutes on one card without a network, the most wanted
# first. The table below has the steps, each with its limit in seconds; those of PyTorch and JAX sum to at most 480.
#
#   tools/gpu_check.sh [FOLDER] [--tiny]
#
# FOLDER (default: gpu-check) gets figures.jsonl, a line of JSON for each figure as soon as it is there; summary.txt;
# and logs.tar.gz, with all else. Uses the Python named by PYTHON (default: .venv/bin/python, else python3) and those
# of FRAMEWORKS (default: "torch jax") that see an accelerator in it. Next to a framework it needs keras, namex, optree,
# pydantic, pydantic-core, annotated-types, typing-inspection, msgspec and nvidia-ml-py; for JPEGs and the run
# simplejpeg, hyperopt, bokeh, xyzservices and tornado; for the contracts pytest. Those that are missing it installs
# from the folder of wheels named by WHEELS. --tiny does every step of PyTorch with tiny sizes on CPUs, without a
# compiler and without limits.
#
# Limits leave room for compilers without a cache: 40 s were seen for a trainer on an H200, and 10 s (JAX: 5) with one.
# 8 minutes are not enough for all: left out are batches of 64, bare loops at 448, JAX in float32, with images from the
# host and its contracts, and what a matrix product and a copy reach. Loops that are not the fastest are timed for 2 s,
# the run is one of 20 s without a compiler. TensorFlow is done only where FRAMEWORKS names it.
set -u
cd "$(dirname "$0")/.."

# Label, limit, and what Python does; a label begins with the framework that the step needs.
steps() {
    folder=tests/contract/trainer/frameworks
    cat <<END
wheels 10 pip install -q --no-index --no-deps --no-compile --target $work/site ${WHEELS:-.}/*.whl
devices 15 benchmarks.card devices $(printf %s "$chosen" | tr ' ' ,)
torch-cold 85 benchmarks.card trainer torch $batch $long --shortage --reference
torch-graph 55 benchmarks.card loop torch.graph $batch $long
jax-cold 58 benchmarks.card trainer jax $batch $long --shortage
jax-jit 42 benchmarks.card loop jax.jit $batch $long
tensorflow-cold 100 benchmarks.card trainer tensorflow $batch $long --shortage
tensorflow-xla 60 benchmarks.card loop tensorflow.xla $batch $long
torch-beside 86 benchmarks.card trainer torch $batch $short --kernels --beside $large $seconds
jax-warm 20 benchmarks.card trainer jax $batch $short --kernels
ratios 3 benchmarks.card ratios $figures
torch-contracts 26 pytest -q -p no:cacheprovider -k $tests $folder/test_torch_compiled.py $folder/test_frameworks.py
torch-jpegs 28 benchmarks.card trainer torch $batch $short --images jpegs
torch-loops 20 benchmarks.card loop torch.compiled,torch.eager $batch $short
torch-run 32 benchmarks.card run torch --compile off --seconds $run
END
}

out=gpu-check tiny=
for word; do
    case $word in
        --tiny) tiny=1 ;;
        -*) echo "usage: $0 [FOLDER] [--tiny]" >&2; exit 2 ;;
        *) out=$word ;;
    esac
done
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
began=$(date +%s)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'tar czf "$out/logs.tar.gz" -C "$work" logs && rm -rf "$work"' EXIT
mkdir "$work/logs"
figures=$work/figures.jsonl
ln -s "$out/figures.jsonl" "$figures"  # a name without spaces
export PYTHONPATH="$work/site:.${PYTHONPATH:+:$PYTHONPATH}" TF_CPP_MIN_LOG_LEVEL=3 PYTHONUNBUFFERED=1
export XLA_PYTHON_CLIENT_PREALLOCATE=false JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" JAX_COMPILATION_CACHE_DIR="$work/jax"
: >"$out/figures.jsonl"
: >"$out/summary.txt"
chosen=${FRAMEWORKS:-torch jax}
failed=0 batch=256 large=448 seconds=10 run=20 tests=torch long='--seconds 10' short='--seconds 2' seen='[1-9]'
if [ -n "$tiny" ]; then
    batch=8 large=4 seconds=0 run=8 tests=replayed_step seen='[0-9]'
    long='--seconds 0 --size 64 --steps 3' short=$long
    export TORCHDYNAMO_DISABLE=1
fi
ends=$((began + 480))
[ -z "$tiny" ] || ends=$((began + 3600))  # CPUs may be slow, and busy

say() { echo "$*" | tee -a "$out/summary.txt"; }

# wanted LABEL: true if the step is to be done. A framework must see an accelerator, or the script is only tried.
wanted() {
    case $1 in
        wheels) [ -n "${WHEELS:-}" ] ;;
        *-*) case " $chosen " in *" ${1%%-*} "*) ;; *) false ;; esac &&
            grep -q "\"framework\": \"${1%%-*}\", \"accelerators\": $seen" "$out/figures.jsonl" ;;
    esac
}

# step LABEL LIMIT WORDS...: lines of JSON go to figures.jsonl, all else to the logs; a failure is told and counted.
step() {
    label=$1 limit=$2
    shift 2
    from=$(date +%s)
    left=$((ends - from))
    if [ $left -lt 5 ]; then
        say "$label: NOT DONE, the 8 minutes are over"
        failed=$((failed + 1))
        return
    fi
    if [ -n "$tiny" ] || [ "$limit" -gt $left ]; then limit=$left; fi
    case $label in
        *-*) set -- "KERAS_BACKEND=${label%%-*}" "AIPERF_TEST_FRAMEWORK=${label%%-*}" "$PYTHON" -m "$@" ;;
        *) set -- "$PYTHON" -m "$@" ;;
    esac
    # Each figure at once: if all of this is ended from outside, what is known is in the folder.
    { timeout -k 5 "$limit" env "$@" </dev/null 2>"$work/logs/$label.log"; echo $? >"$work/code"; } |
        tee "$work/logs/$label.txt" | while IFS= read -r line; do
            case $line in "{"*"}") printf '%s\n' "$line" >>"$out/figures.jsonl" ;; esac
        done
    code=$(cat "$work/code")
    if [ "$code" -eq 0 ]; then state=ok
    else state="FAILED ($code): $(tail -n 1 "$work/logs/$label.log")"; failed=$((failed + 1)); fi
    say "$label: $state, $(($(date +%s) - from)) s"
}

steps >"$work/steps"
while read -r label limit words; do
    # shellcheck disable=SC2086  # they are words
    if wanted "$label"; then step "$label" "$limit" $words; fi
    if [ "$label" = devices ] && ! grep -q "\"accelerators\": $seen" "$out/figures.jsonl"; then
        echo "no framework in $PYTHON sees an accelerator" >&2
        exit 1
    fi
done <"$work/steps"

say "$failed failed; results: $out"
exit $((failed > 0))
