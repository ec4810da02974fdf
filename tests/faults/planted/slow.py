"""The campaign of planted slow replicas: the report of a real run must name them and their cause.

python -m tests.faults.planted.slow --rounds 5 [--kinds quota,input,disk,even] [--seed 1]

Each round trains for real, in PyTorch, on eight replicas that are reached by ssh, each with a host
name of its own. One of them has a CPU quota by a control group, files of images that answer late,
or a file system whose `fsync` takes longer; or none (`even`). A round is right if this replica is
named with this cause, and no other is named. The last line is `slow: rounds=<n> right=<n>
missed=<n> accused=<n>`. It needs root.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.grounds.contract import missing_programs
from tests.faults.planted.screening import quota
from tests.support.hosts.sshd import Hosts, start_hosts
from tests.support.images import silent
from workloads.datasets.synthesize import Recipe, synthesize

REPLICAS = 8
LIMIT_S = 900

IMAGES = Recipe({"train": 64, "validation": 16}, {"train": 2, "validation": 1}, 10, 40, 56, 32, 1)
"""Images of which an epoch takes a second of a core."""

PYTHON = """#!/bin/sh
# The Python of a node: with a host name, and with its fault.
number=none
for word; do
  test "$before" = --replica && number=$word
  before=$word
done
test $number = none && exec {python} "$@"
if test $number = {replica}; then
  case {kind} in
    quota) echo $$ >{group}/cgroup.procs ;;
    input) export LD_PRELOAD={library} AIPERF_SLOW_READS={images} ;;
    disk) export LD_PRELOAD={library} AIPERF_SLOW_FSYNC=1 ;;
  esac
fi
export OMP_NUM_THREADS=1
exec unshare --uts sh -c 'hostname "$0"; exec "$@"' "slow-n$number" {python} "$@"
"""

LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
ssize_t read(int descriptor, void *buffer, size_t count) {
  static ssize_t (*real)(int, void *, size_t);
  char name[64], path[4096];
  const char *folder = getenv("AIPERF_SLOW_READS");
  if (!real) real = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
  if (folder) {
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length > 0 && !strncmp(path, folder, strlen(folder))) usleep(100000);
  }
  return real(descriptor, buffer, count);
}
int fsync(int descriptor) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  if (getenv("AIPERF_SLOW_FSYNC")) usleep(1500000);
  return real(descriptor);
}
"""
"""A library before the C library: each read of an image, or each `fsync`, takes longer."""

CAUSES = {
    "quota": ("quota",),
    "input": ("input",),
    "disk": ("storage", "checkpoint"),
    "even": (),
}
"""Kinds of faults, and the phases or facts that may be named as their cause."""


@dataclass(frozen=True)
class Ground:
    """The hosts, and all that faults need."""

    folder: Path
    hosts: Hosts
    group: Path
    duration: str

    def run(self, kind: str, replica: int) -> list[dict[str, Any]]:
        """Train with a fault; the slow replicas that the report names."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        program = folder / "python"
        program.write_text(
            PYTHON.format(
                python=shlex.quote(sys.executable),
                replica=replica,
                kind=kind,
                group=self.group,
                library=self.folder / "slow.so",
                images=self.folder / "images",
            )
        )
        program.chmod(0o755)
        settings = {
            "environment.python": f'"{program}"',
            "training.batch_size": 32,
            "training.max_epochs": 12,
            "training.compile": '"off"',
            "training.checkpoint_interval": '"1s"',
            "replica.cpu_threads": 1,
            "replica.warm_up": "false",
            "search.strategy": '"unguided"',
            "search.hpo": '"unguided"',
            "telemetry.interval": 2,
        }
        words = [
            *("--launcher", "ssh", *self.hosts.overrides(), "--framework", "torch", "--dataset", "images"),
            *("--data-dir", self.folder / "images", "--replicas", REPLICAS, "--duration", self.duration),
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
            *("--output", folder / "run", "--no-page"),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "aiperf", "run", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        comparison = json.loads((folder / "run" / "report" / "report.json").read_text())["comparison"]
        compared = 0 if comparison is None else comparison["compared"]
        if compared < REPLICAS:
            sys.stdout.write(f"{compared} replicas were compared; take a longer --duration\n")
        return [effect for effect in (comparison or {"effects": ()})["effects"] if effect["slow"]]


def verdict(kind: str, replica: int, named: list[dict[str, Any]]) -> str:
    """`right`; `missed`, which a wrong cause is, too; or `accused`: another one is named."""
    if {effect["replica"] for effect in named} - ({replica} if kind != "even" else set()):
        return "accused"
    causes = {effect["phase"] for effect in named}
    return "right" if kind == "even" or causes & set(CAUSES[kind]) else "missed"


@contextmanager
def ground(folder: Path, duration: str) -> Iterator[Ground]:
    """Eight hosts, images, a slow library and a control group."""
    (folder / "slow.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "slow.so", folder / "slow.c", "-ldl"], check=True)
    synthesize(IMAGES, folder / "images", silent, workers=1)
    hosts = start_hosts(folder / "hosts", REPLICAS)
    try:
        with quota() as group:
            yield Ground(folder, hosts, group, duration)
    finally:
        hosts.stop()


def main() -> int:
    """Play all rounds, kind after kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--kinds", default=",".join(CAUSES), metavar="LIST")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duration", default="5m", help="of each run (default: %(default)s)")
    arguments = parser.parse_args()
    if missing := missing_programs("sshd", "ssh-keygen", "unshare", "cc"):
        sys.exit(missing)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing of the ground is left behind
    draw, verdicts = random.Random(arguments.seed), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="aiperf-slow-") as folder,
        ground(Path(folder), arguments.duration) as place,
    ):
        for _ in range(arguments.rounds):
            for kind in arguments.kinds.split(","):
                replica = draw.randrange(REPLICAS)
                named = place.run(kind, replica)
                verdicts.append(verdict(kind, replica, named))
                found = {"kind": kind, "replica": replica, "verdict": verdicts[-1], "named": named}
                sys.stdout.write(f"{json.dumps(found)}\n")
                sys.stdout.flush()
    counts = " ".join(f"{name}={verdicts.count(name)}" for name in ("right", "missed", "accused"))
    sys.stdout.write(f"slow: rounds={len(verdicts)} {counts}\n")
    return 0 if verdicts.count("right") == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
