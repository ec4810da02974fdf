#!/bin/sh
# All that needs an accelerator, in one command of at most 8 minutes on one card without a network, the most wanted
# first: facts, the trainers and the fastest loops beside them, a training next to a standby, a lack of memory, the
# frameworks' contracts, and at last two replicas on the card with telemetry and energy. Each step has a limit of its
# own; where the 8 minutes end, what is left is not done.
#
#   tools/gpu_check.sh [FOLDER] [--tiny]
#
# FOLDER (default: gpu-check) gets figures.jsonl, a line of JSON for each figure as soon as it is there; summary.txt;
# and logs.tar.gz, with all else. Uses the Python named by PYTHON (default: .venv/bin/python, else python3) and every
# framework in it that sees an accelerator, or those in FRAMEWORKS ("jax torch"). Next to a framework it needs keras,
# namex, optree, pydantic, pydantic-core, annotated-types, typing-inspection and msgspec; for the runs hyperopt, bokeh,
# xyzservices and tornado; for the contracts pytest. Those that are missing it installs from the folder of wheels
# named by WHEELS. --tiny tries the script itself on CPUs.
set -u
cd "$(dirname "$0")/.."
out=gpu-check tiny=
for word; do
    case $word in
        --tiny) tiny=1 ;;
        -*) echo "usage: $0 [FOLDER] [--tiny]" >&2; exit 2 ;;
        *) out=$word ;;
    esac
done
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} TF_CPP_MIN_LOG_LEVEL=3 PYTHONUNBUFFERED=1
export XLA_PYTHON_CLIENT_PREALLOCATE=false JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
began=$(date +%s)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'tar czf "$out/logs.tar.gz" -C "$work" logs && rm -rf "$work"' EXIT
mkdir "$work/logs"
export TORCHINDUCTOR_CACHE_DIR="$work/inductor" JAX_COMPILATION_CACHE_DIR="$work/jax"
: >"$out/figures.jsonl"
: >"$out/summary.txt"
if [ -n "${WHEELS:-}" ]; then
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$WHEELS"/*.whl || exit 1
    export PYTHONPATH="$work/site:$PYTHONPATH"
fi
failed=0 size=224 batches=256,64 steps=24 rounds=5 seconds=3 duration=60s
[ -n "$tiny" ] && size=32 batches=4 steps=5 rounds=1 seconds=0.1 duration=15s
ends=$((began + 480))

say() { echo "$*" | tee -a "$out/summary.txt"; }

# step NAME SECONDS COMMAND...: lines of JSON go to figures.jsonl, all else to the logs; a failure is told and counted.
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
    [ -z "$tiny" ] || limit=$left  # CPUs may be slow, and busy
    [ $limit -le $left ] || limit=$left
    timeout "$limit" "$@" >"$work/logs/$label.txt" 2>"$work/logs/$label.log"
    code=$?
    if [ $code -eq 0 ]; then state=ok
    else state="FAILED ($code): $(tail -n 1 "$work/logs/$label.log")"; failed=$((failed + 1)); fi
    grep '^{.*}$' "$work/logs/$label.txt" >>"$out/figures.jsonl"
    say "$label: $state, $(($(date +%s) - from)) s"
}

# sees FRAMEWORK: true if it is installed and sees an accelerator (or the script is only tried).
sees() {
    "$PYTHON" - "$1" "$tiny" 2>/dev/null <<'PROGRAM'
import sys
from replica.trainer.frameworks import FRAMEWORKS
sys.exit(not (FRAMEWORKS.load(sys.argv[1])().accelerators() or sys.argv[2]))
PROGRAM
}

frameworks=
for name in ${FRAMEWORKS:-torch jax tensorflow}; do
    if sees "$name"; then frameworks="$frameworks $name"; fi
done
[ -n "$frameworks" ] || { echo "no framework in $PYTHON sees an accelerator" >&2; exit 1; }
say "frameworks:$frameworks"

step devices 15 "$PYTHON" -c "
import json
from dataclasses import asdict
from aiperf.machine.accelerators import AcceleratorSamples, find_accelerators
print(json.dumps({'devices': [asdict(each) for each in find_accelerators()]}))
print(json.dumps({'sample': AcceleratorSamples()()}))"

card() {
    label=$1 limit=$2
    shift 2
    step "$label" "$limit" "$PYTHON" -m benchmarks.card "$@" --size $size --steps $steps --rounds $rounds \
        --seconds $seconds
}
best() {
    case $1 in
        torch) echo graph ;;
        jax) echo jit ;;
        tensorflow) echo xla ;;
    esac
}
for name in $frameworks; do
    card "$name-cold" 100 trainer "$name" $batches
    [ -n "$tiny" ] && break
    card "$name-loop" 130 loop "$name.$(best "$name")" $batches
    card "$name-warm" 45 trainer "$name" ${batches%%,*}
done
first=${frameworks# }
first=${first%% *}
[ -n "$tiny" ] || card "$first-standby" 60 standby "$first" ${batches%%,*}
[ "$tiny$first" = torch ] && card "$first-plain" 45 trainer "$first" ${batches%%,*} --compile off
step ratios 10 "$PYTHON" -m benchmarks.card ratios "$out/figures.jsonl"
[ -n "$tiny" ] || card "$first-host" 45 trainer "$first" ${batches%%,*} --images host
[ -n "$tiny" ] || card "$first-kernels" 45 trainer "$first" ${batches%%,*} --kernels

# Memory that is short must be known as such, and the next operation must work.
for name in $frameworks; do
    step "$name-memory" 30 "$PYTHON" -c "
import json, sys
from replica.trainer.frameworks import FRAMEWORKS
framework = FRAMEWORKS.load('$name')()
framework.configure(1, 0)
import keras
try:
    keras.ops.convert_to_numpy(keras.ops.zeros((1 << 50,)))
except Exception as error:
    kind = framework.kind_of(error)
    print(json.dumps({'memory': '$name', 'error': type(error).__name__, 'kind': kind, 'text': str(error)[:300]}))
    sys.exit(not (kind == 'out_of_memory' and float(keras.ops.sum(keras.ops.ones((8, 8)))) == 64))
sys.exit(1)"
    [ -n "$tiny" ] && break
done

# The contracts in a process of each framework, where no other need be installed: among them steps that are compiled
# and replayed against those that are not.
if "$PYTHON" -c "import pytest" 2>/dev/null && [ -z "$tiny" ]; then
    for name in $frameworks; do
        step "$name-contract" 60 env "AIPERF_TEST_FRAMEWORK=$name" "KERAS_BACKEND=$name" "$PYTHON" -m pytest -q \
            -p no:cacheprovider -k "$name" tests/contract/trainer/frameworks/test_torch_compiled.py \
            tests/contract/trainer/frameworks/test_frameworks.py
    done
fi

# Two replicas share one card; their report says what telemetry counted.
rm -rf "$work/digits"
step run 100 "$PYTHON" -m aiperf run --preset quick --framework "$first" --duration $duration --output "$work/digits" \
    --format json --replicas 2
step report 60 "$PYTHON" -c "
import json, sys
report = json.load(open('$work/digits/report/report.json'))
print(json.dumps({name: report[name] for name in ('energy', 'usage', 'score_ops', 'status')}))
sys.exit(not any(row['accelerators'] for row in report['usage']) and not '$tiny')"

say "$failed failed; results: $out"
exit $((failed > 0))
