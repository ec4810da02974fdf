#!/usr/bin/env bash
# Build the CPU image without a container registry or a daemon, and run a short training inside of it.
#
#   sudo containers/check.sh [FOLDER]
#
# Needs root, buildah and debootstrap (Debian: apt-get install buildah debootstrap), 10 GB in FOLDER and
# about half an hour on two cores. The base is a minimal Debian 12 from Debian's own archive, which stands in for
# debian:bookworm-slim. `make test` does not call this: it only compares the files.
set -euo pipefail

folder=$(realpath -m "${1:-/var/tmp/aiperf-container}")
repository=$(realpath "$(dirname "$0")/..")
base=localhost/debian:bookworm-slim
builder=(buildah --root "$folder/storage" --runroot "$folder/run")

mkdir -p "$folder"
if ! "${builder[@]}" inspect --type image "$base" >/dev/null 2>&1; then
  rm -rf "$folder/rootfs"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$folder/rootfs"
  # Behind a proxy with a certificate of its own, apt and pip need that certificate too.
  cp -L /etc/ssl/certs/ca-certificates.crt "$folder/rootfs/etc/ssl/certs/"
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' > "$folder/rootfs/etc/pip.conf"
  container=$("${builder[@]}" from scratch)
  "${builder[@]}" add -q "$container" "$folder/rootfs" /
  "${builder[@]}" commit -q "$container" "$base"
  "${builder[@]}" rm "$container"
fi

"${builder[@]}" bud --isolation chroot --layers --build-arg BASE="$base" --tag localhost/aiperf \
  --file "$repository/containers/Dockerfile" "$repository"

container=$("${builder[@]}" from localhost/aiperf)
trap '"${builder[@]}" rm "$container" >/dev/null' EXIT
# Gloo crashes if the name of its host has no address, and buildah gives its containers such a name;
# Docker and Podman list theirs in /etc/hosts, Apptainer keeps the host's.
inside() { "${builder[@]}" run --isolation chroot --hostname localhost "$container" -- "$@"; }
inside aiperf --version
inside horovodrun --check-build
# Real training: one replica, then two ranks that average their gradients, over Gloo and over MPI.
for starter in none horovodrun mpirun; do
  ranks=$([ "$starter" = none ] && echo 1 || echo 2)
  inside aiperf run --preset quick --replicas 1 --duration 3m --set replica.ranks="$ranks" \
    --set replica.rank_starter="$starter" --output "/work/runs/$starter"
  inside aiperf verify "/work/runs/$starter"
  # Work was done: a run without any has no score.
  inside python -c "import json, sys; sys.exit(not json.load(open('runs/$starter/report/report.json'))['score_ops'])"
done
