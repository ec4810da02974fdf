#!/bin/sh
# All that needs an accelerator, in one command of at most 8 minutes on one card without a network, the most wanted
# first. The table below has the steps, each with its limit in seconds; those of PyTorch and JAX sum to at most 480.
# Seconds that a step does not need are the next one's.
#
#   tools/gpu_check.sh [FOLDER] [--tiny]
#
# FOLDER (default: gpu-check) gets figures.jsonl, a line of JSON for each figure as soon as it is there; summary.txt;
# and logs.tar.gz, with all else. Uses the Python named by PYTHON (default: .venv/bin/python, else python3) and those
# of FRAMEWORKS (default: "torch jax") that see an accelerator in it. Next to a framework it needs keras, namex, optree,
# pydantic, pydantic-core, annotated-types, typing-inspection, msgspec and nvidia-ml-py; for JPEGs and the run
# simplejpeg, hyperopt, bokeh, xyzservices and tornado; for the contracts pytest, pytest-timeout, pytest-xdist,
# hypothesis and psutil. Those that are missing it installs from the folder of wheels named by WHEELS. --tiny tries the
# steps with tiny sizes on CPUs, without a compiler and without limits.
#
# Limits leave room for compilers without a cache: 40 s were seen for a trainer on an H200, and 10 s (JAX: 5) with one.
# 8 minutes are not enough for all: left out are batches of 64, bare loops at 448, JAX in float32, with images from the
# host and its contracts, and what a matrix product and a copy reach. Loops that are not the fastest are timed for 2 s,
# the run is one of 12 s without a compiler. TensorFlow is done only where FRAMEWORKS names it, in the seconds of others.
set -u
cd "$(dirname "$0")/.."

# Label, limit, and what Python does; a label begins with the framework that the step needs.
steps() {
    folder=tests/contract/trainer/frameworks
    cat <<END
wheels 15 pip install -q --no-index --no-deps --no-compile --target $work/site ${WHEELS:-.}/*.whl
devices 25 benchmarks.card devices $(printf %s "$chosen" | tr ' ' ,)
torch-cold 70 benchmarks.card trainer torch $batch $long --shortage
torch-graph 50 benchmarks.card loop torch.graph $batch $long
jax-cold 60 benchmarks.card trainer jax $batch $long --shortage
jax-jit 40 benchmarks.card loop jax.jit $batch $long
tensorflow-cold 100 benchmarks.card trainer tensorflow $batch $long --shortage
tensorflow-xla 60 benchmarks.card loop tensorflow.xla $batch $long
torch-beside 80 benchmarks.card trainer torch $batch $short --beside $large $seconds --kernels
jax-warm 17 benchmarks.card trainer jax $batch $short --kernels
torch-reference 22 benchmarks.card trainer torch $batch $short --reference
ratios 3 benchmarks.card ratios $figures
torch-contracts 26 pytest -v -p no:cacheprovider -k $tests $folder/test_torch_compiled.py $folder/test_frameworks.py
torch-jpegs 25 benchmarks.card trainer torch $batch $short --images jpegs
torch-loops 15 benchmarks.card loop torch.eager,torch.compiled $batch $short
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
trap 'exit 143' INT TERM HUP  # a shell that is ended from outside does not exit by itself
mkdir "$work/logs"
figures=$work/figures.jsonl
ln -s "$out/figures.jsonl" "$figures"  # a name without spaces
export PYTHONPATH="$work/site:.${PYTHONPATH:+:$PYTHONPATH}" TF_CPP_MIN_LOG_LEVEL=3 PYTHONUNBUFFERED=1
export XLA_PYTHON_CLIENT_PREALLOCATE=false JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" JAX_COMPILATION_CACHE_DIR="$work/jax"
: >"$out/figures.jsonl"
: >"$out/summary.txt"
chosen=$(echo "${FRAMEWORKS:-torch jax}" | tr , ' ')
failed=0 batch=256 large=448 seconds=10 run=12 tests=torch long='--seconds 10' short='--seconds 2' seen='[1-9]'
if [ -n "$tiny" ]; then
    batch=8 large=4 seconds=0 run=8 tests=replayed_step seen='[0-9]'
    long='--seconds 0 --size 64 --steps 3' short=$long
    export TORCHDYNAMO_DISABLE=1
fi
due=$began

say() { echo "$*" | tee -a "$out/summary.txt"; }

# sees FRAMEWORK: true if it sees an accelerator, or the script is only tried.
sees() { grep -q "\"framework\": \"$1\", \"accelerators\": $seen" "$out/figures.jsonl"; }

# wanted LABEL: true if the step is to be done. A framework must see an accelerator, or the script is only tried.
wanted() {
    case $1 in
        wheels) [ -n "${WHEELS:-}" ] ;;
        *-*) case " $chosen " in *" ${1%%-*} "*) sees "${1%%-*}" ;; *) false ;; esac ;;
    esac
}

# step LABEL WORDS...: lines of JSON go to figures.jsonl, all else to the logs; a failure is told and counted.
step() {
    label=$1
    shift
    from=$(date +%s)
    limit=$((due - from))
    [ -z "$tiny" ] || limit=3600  # CPUs may be slow, and busy
    if [ $limit -lt 1 ]; then
        say "$label: NOT DONE, its time is over"
        failed=$((failed + 1))
        return
    fi
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
    case $label in tensorflow-*) ;; *) due=$((due + limit)) ;; esac
    # shellcheck disable=SC2086  # they are words
    if wanted "$label"; then step "$label" $words; fi
    [ "$label" = devices ] || continue
    for name in $chosen; do
        sees "$name" || { say "$name: sees no accelerator"; failed=$((failed + 1)); }
    done
done <"$work/steps"

say "$failed failed; results: $out"
exit $((failed > 0))
