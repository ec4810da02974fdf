"""The campaign of planted slow replicas: the report of real trainings must name the slow one.

python -m tests.faults.planted.slow --rounds 20
    [--kinds quota,input,disk,device,even] [--seed 1]

Each round trains a small network on eight replicas of this host, one of which is slowed down in one
way, or none (`even`). A round is right if the report names this replica by a cause of this kind,
and no other replica. The last line is `slow: rounds=<n> right=<n> missed=<n> accused=<n>`.

Each replica has a host name and a control group of its own, with the same share of the host's CPUs:
it needs root. It computes by PyTorch on one thread.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import Split
from aiperf.host import this_host
from aiperf.run_directory.paths import open_run
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.estimates import EffectPart
from tests.support.folders import ROOT
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize

REPLICAS = 8
TRAININGS, EPOCHS = 16, 8
"""Trainings of a run, of these epochs each: processes differ by some percent on one host, which
the report can only know of replicas that have trained several times.
"""
EXAMPLES: dict[Split, int] = {"train": 256, "validation": 64}
LIMIT_S = 900

PLANT = """
import os, sys, time

words = sys.orig_argv
if "--replica" in words:
    os.environ["AIPERF_OWN"] = words[words.index("--replica") + 1]
own = os.environ.get("AIPERF_OWN")
kind = os.environ["AIPERF_PLANTED"] if own == os.environ["AIPERF_SLOW"] else ""
trainer = "replica.trainer" in words

if "--replica" in words:
    import ctypes, socket
    if ctypes.CDLL(None).unshare(0x04000000):  # CLONE_NEWUTS
        os._exit(1)
    socket.sethostname("n" + own)
    with open(os.environ["AIPERF_GROUPS"] + "/aiperf-" + own + "/cgroup.procs", "w") as group:
        group.write(str(os.getpid()))

if os.environ["AIPERF_PLANTED"] == "device" and own and not trainer:
    import pynvml
    from tests.support.driver import FakeDriver
    FakeDriver().install(setattr)
    pynvml.nvmlDeviceGetUUID = lambda *_: ("GPU-" + own).encode()
    pynvml.nvmlDeviceGetClockInfo = lambda *_: 900 if kind else 1410
    pynvml.nvmlDeviceGetCurrentClocksEventReasons = lambda *_: 0x40 if kind else 0

if os.environ["AIPERF_PLANTED"] == "disk":
    if kind and not trainer:
        os.environ["LD_PRELOAD"] = os.environ["AIPERF_SLOW_DISK"]
    if trainer:
        from replica.trainer.data.science import source
        from workloads.data.formats import hdf5
        source.CACHE_BYTES, hdf5.CACHE_BYTES, hdf5.WHOLE_BYTES = 2 << 20, 0, 0

if kind == "input" and trainer:
    from replica.trainer.data.science.source import Reader
    sample = Reader.sample
    def slow_sample(*words):
        time.sleep(0.01)
        return sample(*words)
    Reader.sample = slow_sample

if kind == "device" and trainer:
    import torch
    grad = torch.autograd.grad
    def slow_grad(*words, **more):
        time.sleep(1)
        return grad(*words, **more)
    torch.autograd.grad = slow_grad
"""
"""What every Python of a replica runs first: it makes a node of the replica, and slows it down."""

SLOW_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pread64(int file, void *to, size_t size, off64_t at) {
  static ssize_t (*real)(int, void *, size_t, off64_t);
  if (!real) real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
  if (size >= 1 << 10) usleep(200000);
  return real(file, to, size, at);
}
ssize_t pread(int file, void *to, size_t size, off_t at) { return pread64(file, to, size, at); }
"""
"""A library before the C library: HDF5 waits 0.2 s for each large piece of a file.

No replica keeps what it has read, as if the data were larger than the memory.
"""

SHARE = 0.85
"""Share of its part of the host's CPUs that the control group of each replica leaves to it: as on
nodes of their own, none is faster while another one waits.
"""

QUOTA_SHARE = 0.3
"""Share of that which is left to the slow replica."""

PHASES: dict[str, frozenset[str]] = {
    "quota": frozenset({"quota"}),
    "input": frozenset({"input"}),
    "disk": frozenset({"input"}),
    "device": frozenset({"clocks"}),
    "even": frozenset(),
}
"""The causes that name each kind."""


@dataclass(frozen=True)
class Round:
    """A run with one slow replica."""

    kind: str
    replica: int

    def verdict(self, slow: Sequence[EffectPart]) -> str:
        """`right`, `missed` or `accused`: another replica. `slow`: those that the report names."""
        expected = set() if self.kind == "even" else {self.replica}
        named = {effect.replica for effect in slow}
        if named - expected:
            return "accused"
        fits = not expected or any(effect.phase in PHASES[self.kind] for effect in slow)
        return "right" if named == expected and fits else "missed"


@contextmanager
def groups() -> Iterator[Path]:
    """A control group of each replica, of version 1 or 2; gives the folder that they are in."""
    first = Path("/sys/fs/cgroup/cpu")
    root = first if first.is_dir() else Path("/sys/fs/cgroup")
    own = [root / f"aiperf-{replica}" for replica in range(REPLICAS)]
    for group in own:
        group.mkdir(exist_ok=True)
    try:
        yield root
    finally:
        for group in own:
            with contextlib.suppress(OSError):
                group.rmdir()


def limit(group: Path, cpus: float) -> None:
    """Give a control group this many CPUs' worth of time."""
    period = 100_000
    quota = int(cpus * period)
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (group / "cpu.max").write_text(f"{quota} {period}")


@dataclass(frozen=True)
class Ground:
    """What all rounds share."""

    data: Path
    groups: Path
    slow_disk: Path
    """The library of `SLOW_DISK`."""

    def play(self, played: Round, folder: Path) -> list[EffectPart]:
        """Train with the slow replica of a round; gives what the report says of slow replicas."""
        (folder / "sitecustomize.py").write_text(PLANT)
        for replica in range(REPLICAS):
            slowed = played.kind == "quota" and replica == played.replica
            share = SHARE * (QUOTA_SHARE if slowed else 1)
            limit(self.groups / f"aiperf-{replica}", share * this_host().usable_cpus() / REPLICAS)
        done = subprocess.run(
            self._words(folder / "run"),
            env={
                **os.environ,
                "AIPERF_PLANTED": played.kind,
                "AIPERF_SLOW": "" if played.kind == "even" else str(played.replica),
                "AIPERF_GROUPS": str(self.groups),
                "AIPERF_SLOW_DISK": str(self.slow_disk),
                "PYTHONPATH": f"{folder}:{ROOT}",
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
            },
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return named_in(folder / "run")

    def _words(self, output: Path) -> list[str]:
        settings = {
            "science.data_dir": self.data,
            "science.max_epochs": EPOCHS,
            "telemetry.interval": 2,
        }
        options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        words = ("--suite", "science", "--rehearsal", "--workload", "hepcnn", "--instances", TRAININGS)
        own = ("--replicas", REPLICAS, "--framework", "torch", "--duration", f"{LIMIT_S}s", "--no-page")
        return [sys.executable, "-m", "aiperf", "run", *map(str, (*words, *own)), *options, "--output", str(output)]


def named_in(run: Path) -> list[EffectPart]:
    """The slow replicas of a run by its report."""
    comparison = build_report(read_run(open_run(run))).comparison
    return [] if comparison is None else list(comparison.slow)


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Data and control groups."""
    data = folder / "data"
    synthesize(ScienceRecipe("hep", EXAMPLES, 32, 1), data / "hep-32", lambda done, total: None, workers=0)
    library, code = folder / "slow_disk.so", folder / "slow_disk.c"
    code.write_text(SLOW_DISK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, code, "-ldl"], check=True)
    with groups() as root:
        yield Ground(data, root, library)


def main() -> int:
    """Play all rounds, kind after kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--kinds", default=",".join(PHASES), metavar="LIST")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw, verdicts = random.Random(arguments.seed), list[str]()
    with tempfile.TemporaryDirectory(prefix="aiperf-slow-") as own, ground(Path(own)) as place:
        for number in range(arguments.rounds):
            for kind in arguments.kinds.split(","):
                played = Round(kind, draw.randrange(REPLICAS))
                folder = Path(own) / f"{kind}-{number}"
                folder.mkdir()
                slow = place.play(played, folder)
                verdicts.append(played.verdict(slow))
                _print(played, slow, verdicts[-1])
    counts = " ".join(f"{name}={verdicts.count(name)}" for name in ("right", "missed", "accused"))
    sys.stdout.write(f"slow: rounds={len(verdicts)} {counts}\n")
    return 0 if verdicts.count("right") == len(verdicts) else 1


def _print(played: Round, slow: Sequence[EffectPart], verdict: str) -> None:
    found = [
        {"replica": each.replica, "measure": each.measure, "effect": round(each.effect, 3), "phase": each.phase}
        for each in slow
    ]
    line = {"kind": played.kind, "replica": played.replica, "verdict": verdict, "found": found}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
