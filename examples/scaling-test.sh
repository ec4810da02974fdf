#!/usr/bin/env bash
# Weak scaling over 1, 2, 4 and 8 replicas: one run after another, then efficiency and a figure.
#
#   examples/scaling-test.sh /shared/runs/scaling
#
# Finished runs are not repeated: after an interruption, start the script again. Further words are
# options of `aiperf scale`, which override the file: --launcher local --dataset digits --duration 5m.
set -euo pipefail

output=${1:?the directory of the runs is missing}
shift
exec aiperf scale "$(dirname "$0")/scaling-test.toml" --counts "${COUNTS:-1,2,4,8}" --output "$output" "$@"
