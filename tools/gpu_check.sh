#!/bin/sh
# All that needs an accelerator, in one command of at most 8 minutes, the most wanted first: the devices, the trainer
# beside the best bare loops, a lack of memory, the frameworks' contracts, and at last two replicas on one card with
# telemetry and energy. Where the 8 minutes end, what is left is not done.
#
#   tools/gpu_check.sh [FOLDER] [--tiny]
#
# Results go to FOLDER (default: gpu-check). Uses the Python named by PYTHON (default: .venv/bin/python, else python3)
# and every framework in it that sees an accelerator, or those in FRAMEWORKS ("jax torch"). --tiny tries the script
# itself on CPUs.
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
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} TF_CPP_MIN_LOG_LEVEL=3
mkdir -p "$out"
failed=0 size=224 batch=256 batches=64,256,448 rounds=3 seconds=2
[ -n "$tiny" ] && size=32 batch=4 batches=4 rounds=1 seconds=0.1
ends=$(($(date +%s) + 480))

# step NAME SECONDS COMMAND...: its output goes to FOLDER/NAME.txt; a failure is told and counted.
step() {
    label=$1 limit=$2
    shift 2
    began=$(date +%s)
    left=$((ends - began))
    if [ $left -lt 5 ]; then
        echo "$label: NOT DONE, the 8 minutes are over" && failed=$((failed + 1))
        return
    fi
    [ -z "$tiny" ] || limit=$left  # CPUs may be slow, and busy
    [ $limit -le $left ] || limit=$left
    if timeout "$limit" "$@" >"$out/$label.txt" 2>"$out/$label.log"; then state=ok
    else state="FAILED ($?), see $out/$label.log"; failed=$((failed + 1)); fi
    echo "$label: $state, $(($(date +%s) - began)) s"
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
for name in ${FRAMEWORKS:-tensorflow jax torch}; do
    if sees "$name"; then frameworks="$frameworks $name"; fi
done
[ -n "$frameworks" ] || { echo "no framework in $PYTHON sees an accelerator" >&2; exit 1; }
echo "frameworks:$frameworks"

step devices 30 "$PYTHON" -c "
import json
from dataclasses import asdict
from aiperf.machine.accelerators import AcceleratorSamples, find_accelerators
print(json.dumps([asdict(each) for each in find_accelerators()], indent=2))
print(json.dumps(AcceleratorSamples()(), indent=2))"

for name in $frameworks; do
    step "trainer-$name" 90 "$PYTHON" -m benchmarks.training --framework "$name" --size $size --batch $batch \
        --precision bfloat16 --rounds $rounds --format json
    [ -n "$tiny" ] && break
done
for name in $frameworks; do
    step "loops-$name" 60 "$PYTHON" benchmarks/gpu.py --framework "$name" --batch $batches --size $size \
        --precision bfloat16 --seconds $seconds
    [ -n "$tiny" ] && break
done

# Memory that is short must be known as such, and the next operation must work.
for name in $frameworks; do
    step "memory-$name" 40 "$PYTHON" -c "
import sys
from replica.trainer.frameworks import FRAMEWORKS
framework = FRAMEWORKS.load('$name')()
framework.configure(1, 0)
import keras
try:
    keras.ops.convert_to_numpy(keras.ops.zeros((1 << 50,)))
except Exception as error:
    print(type(error).__name__, framework.kind_of(error), str(error)[:300])
    sys.exit(not (framework.kind_of(error) == 'out_of_memory' and float(keras.ops.sum(keras.ops.ones((8, 8)))) == 64))
sys.exit(1)"
    [ -n "$tiny" ] && break
done

# The contracts in a process of each framework, where no other need be installed.
if "$PYTHON" -c "import pytest" 2>/dev/null && [ -z "$tiny" ]; then
    step contract-machine 30 "$PYTHON" -m pytest -q -p no:cacheprovider tests/contract/machine
    for name in $frameworks; do
        step "contract-$name" 45 env "AIPERF_TEST_FRAMEWORK=$name" "KERAS_BACKEND=$name" \
            XLA_PYTHON_CLIENT_PREALLOCATE=false "$PYTHON" -m pytest -q -p no:cacheprovider -k "$name" \
            tests/contract/trainer/frameworks/test_frameworks.py
    done
fi
# PyTorch if it is there: its first step does not wait for a compiler.
last=${frameworks##* }

# Two replicas share one card; their report says what telemetry counted.
run() {
    name=$1
    shift
    rm -rf "$out/$name"
    step "run-$name" 100 "$PYTHON" -m aiperf run --preset quick --framework "$last" --duration 60s \
        --output "$out/$name" --format json "$@"
}
run digits --replicas 2
[ -n "$tiny" ] || run images --dataset imagenet --set training.input=synthetic --set training.max_epochs=1
step report 60 "$PYTHON" -c "
import json, sys
report = json.load(open('$out/digits/report/report.json'))
print(json.dumps({name: report[name] for name in ('energy', 'usage', 'score_ops', 'status')}, indent=2))
sys.exit(not any(row['accelerators'] for row in report['usage']) and not '$tiny')"

echo "$failed failed; results: $out"
exit $((failed > 0))
