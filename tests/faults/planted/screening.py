"""The campaign of planted bad nodes: `aiperf screen` on a real SLURM cluster must name them.

python -m tests.faults.planted.screening --rounds 20
    [--kinds cpu,network,disk,device,hang,even] [--seed 1]

Each round plants one fault on one of four nodes, or none (`even`), and screens them. A round is
right if this node is named, for this measure, and no other node. The last line is `screening:
rounds=<n> right=<n> missed=<n> accused=<n>`. Nodes are namespaces with interfaces of their own, and
control groups: it needs root. Devices are light ones, which multiply matrices for two seconds.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.clock import SystemClock
from aiperf.screening.outcome import Outcome, read_outcome
from slurm.local_cluster import LocalCluster
from tests.faults.grounds.contract import missing_programs

NODES = ("n1", "n2", "n3", "n4")
LIMIT_S = 900

DEVICE = """
import os, sys, time

words = sys.orig_argv
node = os.environ.get("SLURMD_NODENAME", "")
if "replica.measure.screen" in words:
    import numpy
    device, kind = (words[words.index(name) + 1] for name in ("--device", "--kind"))
    row = '{"type":"row","device":"%s","kind":"%s","measure":"%s","value":%s,"spread":%s}\\n'
    os.write(1, (row % (device, kind, "ready", "null", 0)).encode())
    sys.stdin.readline()
    if node == os.environ.get("AIPERF_HANGS"):
        time.sleep(3600)
    square = numpy.ones((256, 256), numpy.float32)
    def rate():
        began, calls = time.monotonic(), 0
        while time.monotonic() - began < 0.4:
            square @ square
            calls += 1
        return calls * 2 * 256**3 / (time.monotonic() - began)
    found = sorted(rate() for _ in range(5))
    os.write(1, (row % (device, kind, "matmul_32", found[2], (found[4] - found[0]) / found[2])).encode())
    # A device of a vendor whose stack is slow: its rates are its own, whatever the machine does.
    noise = 1 + 0.01 * (numpy.random.default_rng(int.from_bytes(os.urandom(4), "big")).random() - 0.5)
    slow = 0.85 if node == os.environ.get("AIPERF_SLOW_DEVICE") else 1.0
    os.write(1, (row % (device, kind, "triad", 2e10 * noise * slow, 0.01)).encode())
    os._exit(0)
"""
"""Light devices, in the place of those of the screening."""

PYTHON = """#!/bin/sh
# The Python of a node: in its namespaces, and with its fault.
test -z "$SLURMD_NODENAME" && exec {python} "$@"
if test "$SLURMD_NODENAME" = "{node}"; then
  case {kind} in
    cpu) echo $$ >{group}/cgroup.procs ;;
    disk) export LD_PRELOAD={library} ;;
    device) export AIPERF_SLOW_DEVICE=$SLURMD_NODENAME ;;
    hang) export AIPERF_HANGS=$SLURMD_NODENAME ;;
  esac
fi
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONPATH={path}
exec nsenter --net=/run/netns/{prefix}$SLURMD_NODENAME unshare --uts sh -c 'hostname "$0"; exec "$@"' \\
  "$SLURMD_NODENAME" {python} "$@"
"""

SLOW_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int descriptor) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  usleep(100000);
  return real(descriptor);
}
"""
"""A library before the C library: each file takes 0.1 s longer to be durable."""

PREFIX = "aiperf-"
BRIDGE = "aiperf-br"
QUOTA_SHARE = 0.15
"""CPUs that the control group leaves to a node."""

SHAPES = ("delay 20ms", "rate 100mbit")
"""Delays need the kernel's sch_netem: without it there are only rates."""


@dataclass(frozen=True)
class Kind:
    """A kind of planted fault: options of the screening, and the measures that may name it."""

    options: tuple[str, ...]
    measures: tuple[str, ...]


KINDS: dict[str, Kind] = {
    "cpu": Kind((), ("matmul_32", "devices")),
    "network": Kind(("--fabric",), ("pair_latency", "pair_all_reduce", "pair_all_gather", "pair_all_to_all")),
    "disk": Kind(("--storage",), ("record", "run_write")),
    "device": Kind((), ("triad",)),
    "hang": Kind((), ()),
    "even": Kind(("--fabric", "--storage"), ()),
}


@contextmanager
def namespaces() -> Iterator[None]:
    """A network namespace for each node, joined by a bridge."""
    _shell(f"ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up")
    try:
        for number, node in enumerate(NODES, 1):
            name, inside = f"{PREFIX}{node}", f"ip netns exec {PREFIX}{node}"
            _shell(
                f"ip netns add {name} && ip link add {name} type veth peer name eth0 netns {name}"
                f" && ip link set {name} master {BRIDGE} up && {inside} ip link set lo up"
                f" && {inside} ip addr add 10.79.0.{number}/24 dev eth0 && {inside} ip link set eth0 up"
            )
        yield
    finally:
        for node in NODES:
            _shell(f"ip netns del {PREFIX}{node}", check=False)
        _shell(f"ip link del {BRIDGE}", check=False)


@contextmanager
def quota() -> Iterator[Path]:
    """A control group with a share of a CPU, of version 1 or 2."""
    first = Path("/sys/fs/cgroup/cpu")
    group = (first if first.is_dir() else Path("/sys/fs/cgroup")) / "aiperf-slow"
    group.mkdir(exist_ok=True)
    try:
        period, allowed = 20_000, int(20_000 * QUOTA_SHARE)
        if first.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(allowed))
        else:
            (group / "cpu.max").write_text(f"{allowed} {period}")
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


@contextmanager
def shaped(node: str, shape: str) -> Iterator[None]:
    """The interface of a node, shaped on both sides."""
    inside = f"ip netns exec {PREFIX}{node} "
    kind = "netem" if shape.startswith("delay") else "tbf burst 32kbit latency 400ms"
    _shell(f"{inside}tc qdisc add dev eth0 root {kind} {shape} && tc qdisc add dev {PREFIX}{node} root {kind} {shape}")
    try:
        yield
    finally:
        _shell(f"{inside}tc qdisc del dev eth0 root; tc qdisc del dev {PREFIX}{node} root", check=False)


def _can_be(shape: str) -> bool:
    try:
        with shaped(NODES[0], shape):
            return True
    except subprocess.CalledProcessError:
        return False


def _shell(command: str, check: bool = True) -> None:
    subprocess.run(["sh", "-c", command], check=check, capture_output=True, text=True)


@dataclass(frozen=True)
class Round:
    """One screening with one fault."""

    kind: str
    node: str
    shape: str = ""

    def verdict(self, outcome: Outcome) -> str:
        """`right`, `missed` or `accused`: another node, or this one for another measure alone."""
        named = {node for node in outcome.bad_nodes if node}
        expected = {self.node} if self.kind != "even" else set()
        known = {node.name if node.known_as is None else node.known_as for node in outcome.nodes if node.name in named}
        if known - expected:
            return "accused"
        if not expected:
            return "right"
        measures = {item.measure for item in outcome.bad}
        lost = any(node.lost is not None for node in outcome.nodes)
        fits = lost if self.kind == "hang" else bool(measures & set(KINDS[self.kind].measures))
        return "right" if known == expected and fits else "missed"


@dataclass(frozen=True)
class Ground:
    """The cluster, and what rounds need of it."""

    folder: Path
    environment: Mapping[str, str]
    group: Path

    def screen(self, played: Round) -> Outcome:
        """Plant the fault of a round, and screen the nodes."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "sitecustomize.py").write_text(DEVICE)
        (folder / "python").write_text(
            PYTHON.format(
                python=shlex.quote(sys.executable),
                node=played.node,
                kind=played.kind,
                group=self.group,
                prefix=PREFIX,
                library=self.folder / "slow.so",
                path=shlex.quote(":".join([str(folder), *filter(None, sys.path)])),
            )
        )
        (folder / "python").chmod(0o755)
        planted = shaped(played.node, played.shape) if played.shape else contextlib.nullcontext()
        words = [
            sys.executable,
            "-m",
            "aiperf",
            "screen",
            "--dataset",
            "digits",
            "--launcher",
            "slurm",
            "--replicas",
            len(NODES),
            "--quick",
            "--devices",
            "cpu",
            "--output",
            folder / "out",
            "--set",
            f'environment.python="{folder / "python"}"',
            *KINDS[played.kind].options,
        ]
        with planted:
            done = subprocess.run(
                [*map(str, words)],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        if done.returncode not in (0, 4):
            raise RuntimeError(done.stderr)
        return read_outcome(folder / "out")


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """A cluster of four nodes in an allocation, and all that faults need."""
    (folder / "slow.c").write_text(SLOW_DISK)
    _shell(f"cc -shared -fPIC -o {folder}/slow.so {folder}/slow.c -ldl")
    cluster = LocalCluster(folder / "cluster", SystemClock())
    with namespaces(), quota() as group:
        cluster.start(len(NODES), None)
        try:
            words = ["salloc", "--no-shell", f"--nodes={len(NODES)}", "--exclusive", "--no-kill"]
            inside = {**os.environ, **cluster.environment}
            given = subprocess.run(words, env=inside, capture_output=True, text=True, check=True)
            job = given.stderr.split("allocation ")[1].split()[0]
            cpus = f"{os.cpu_count()}(x{len(NODES)})"
            yield Ground(
                folder,
                {
                    **cluster.environment,
                    "SLURM_JOB_ID": job,
                    "SLURM_JOB_NODELIST": "n[1-4]",
                    "SLURM_JOB_CPUS_PER_NODE": cpus,
                },
                group,
            )
        finally:
            cluster.stop()


def main() -> int:
    """Play all rounds, kind after kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="LIST")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if missing := missing_programs("slurmctld", "slurmd", "munged", "srun", "ip", "tc", "nsenter", "unshare", "cc"):
        sys.exit(missing)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing of the ground is left behind
    draw, verdicts = random.Random(arguments.seed), list[str]()
    with tempfile.TemporaryDirectory(prefix="aiperf-screening-") as folder, ground(Path(folder)) as place:
        shapes = [shape for shape in SHAPES if _can_be(shape)]
        for number in range(arguments.rounds):
            for kind in arguments.kinds.split(","):
                shape = shapes[number % len(shapes)] if kind == "network" else ""
                played = Round(kind, draw.choice(NODES), shape)
                outcome = place.screen(played)
                verdicts.append(played.verdict(outcome))
                _print(played, outcome, verdicts[-1])
    counts = " ".join(f"{name}={verdicts.count(name)}" for name in ("right", "missed", "accused"))
    sys.stdout.write(f"screening: rounds={len(verdicts)} {counts}\n")
    return 0 if verdicts.count("right") == len(verdicts) else 1


def _print(played: Round, outcome: Outcome, verdict: str) -> None:
    found: dict[str, Any] = {
        "kind": played.kind,
        "node": played.node,
        "shape": played.shape,
        "verdict": verdict,
        "passes": outcome.passes,
        "found": {node: outcome.reasons(node) for node in outcome.bad_nodes},
        "remarks": outcome.remarks,
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
