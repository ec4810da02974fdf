#!/usr/bin/env bash
# The whole benchmark on one node as a batch job: the primary and its replica share the node.
#
#   sbatch examples/one-node-8-gpus.sbatch.sh /shared/runs/one
#
# `aiperf slurm script` writes such a script for several nodes.
#SBATCH --job-name=aiperf
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --mem=0
#SBATCH --time=13:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --no-requeue
#SBATCH --output=aiperf-%j.log
set -euo pipefail

output=${1:?the directory of the run is missing}
examples=${SLURM_SUBMIT_DIR:?this is a job script; submit it with sbatch}/examples

# SLURM's warning comes two minutes before the time limit. It ends the run cleanly: everything that
# was recorded until then is reported.
aiperf run "$examples/one-node-8-gpus.toml" --preset official --output "$output" &
run=$!
trap 'kill -TERM "$run"' TERM
wait "$run" && exit 0
wait "$run"
