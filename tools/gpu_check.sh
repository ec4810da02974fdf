#!/bin/sh
# All that needs an accelerator, in one command of at most 8 minutes: the devices, the best bare loops, the trainer
# beside them, two replicas on one card with telemetry and energy, 16-bit arithmetic, and the frameworks' contracts.
#
#   tools/gpu_check.sh [FOLDER] [--tiny]
#
# Results go to FOLDER (default: gpu-check). Uses the Python named by PYTHON (default: .venv/bin/python, else python3)
# and every framework in it that sees an accelerator. --tiny tries the script itself on CPUs.
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
export PYTHONPATH=. TF_CPP_MIN_LOG_LEVEL=3
mkdir -p "$out"
failed=0 size=224 batches=64,256,448 rounds=2 seconds=3
[ -n "$tiny" ] && size=32 batches=4 rounds=1 seconds=0.1

# step NAME SECONDS COMMAND...: its output goes to FOLDER/NAME.txt; a failure is told and counted.
step() {
    label=$1 limit=$2
    shift 2
    began=$(date +%s)
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
for name in tensorflow jax torch; do
    if sees "$name"; then frameworks="$frameworks $name"; fi
done
[ -n "$frameworks" ] || { echo "no framework in $PYTHON sees an accelerator" >&2; exit 1; }
echo "frameworks:$frameworks"

step devices 60 "$PYTHON" -c "
import json
from dataclasses import asdict
from replica.machine.accelerators import AcceleratorSamples, find_accelerators
print(json.dumps([asdict(each) for each in find_accelerators()], indent=2))
print(json.dumps(AcceleratorSamples()(), indent=2))"

first=
for name in $frameworks; do
    first=${first:-$name}
    step "loops-$name" 120 "$PYTHON" benchmarks/gpu.py --framework "$name" --batch $batches --size $size --seconds $seconds
    step "trainer-$name" 120 "$PYTHON" -m benchmarks.training --framework "$name" --size $size --batch $batches \
        --precision bfloat16 --rounds $rounds --format json
    [ -n "$tiny" ] && break
done

# Two replicas share one card; their report says what telemetry counted.
run() {
    name=$1
    shift
    rm -rf "$out/$name"
    step "run-$name" 150 "$PYTHON" -m aiperf run --preset quick --framework "$first" --duration 60s \
        --output "$out/$name" --format json "$@"
}
run digits --replicas 2 --set training.precision=mixed_float16
[ -n "$tiny" ] || run images --dataset imagenet --set training.input=synthetic --set training.max_epochs=1
step report 60 "$PYTHON" -c "
import json, sys
report = json.load(open('$out/digits/report/report.json'))
print(json.dumps({name: report[name] for name in ('energy', 'usage', 'score_ops', 'status')}, indent=2))
sys.exit(not any(row['accelerators'] for row in report['usage']) and not '$tiny')"

if "$PYTHON" -c "import pytest" 2>/dev/null && [ -z "$tiny" ]; then
    step contract 150 "$PYTHON" -m pytest -q -x tests/contract/trainer/frameworks tests/contract/machine
fi
echo "$failed failed; results: $out"
exit $((failed > 0))
