"""An agent's view of a large run: what it costs to read the digest of it.

python -m benchmarks.scale.agent [--trials N] [--architectures N]

The digest and the architectures are those of 512 replicas in 12 hours, with files of the history
list next to them that no agent should open. A process of its own reads them; its parent makes them.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from aiperf.config.settings import load_config
from aiperf.network.architecture import Architecture
from aiperf.records.digest.entries import Began, Entry, Over
from aiperf.records.digest.writer import DigestWriter
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.manifest import write_manifest
from aiperf.run_directory.paths import RunPaths, open_run
from replica.search.demo.hyperparameters import SPACE
from replica.search.knowledge import Knowledge
from search_space.limits import growth_limits
from search_space.morphisms import morph_data
from search_space.resnet import resnet
from search_space.sampling import random_morph

REPLICAS = 512
TRIALS = 20_000
ARCHITECTURES = 8_000
EPOCHS = 20
PARENTS = 300
"""Architectures that children are made from at a time: whole ones are large."""

PRIMARY = "primary-1"
Made = tuple[str, str | None, tuple[dict[str, str | int], ...]]
"""The hash of an architecture, of its parent, and the morphs between them."""


def generate(root: Path, replicas: int, trials: int, architectures: int) -> RunPaths:
    """Make what an agent may read of a run of that size."""
    paths = RunPaths(root)
    paths.create()
    write_manifest(paths, load_config(overrides={"run.replicas": replicas, "run.duration": 12 * 3600}))
    for replica in range(replicas):
        paths.history_file(f"replica-{replica:04d}-1").touch()
    made = list(_architectures(ArchitectureStore(paths, 1), architectures))
    DigestWriter(paths, PRIMARY, _entries(replicas, trials, made)).close(0)
    return paths


def _architectures(store: ArchitectureStore, number: int) -> Iterator[Made]:
    rng, initial = random.Random(7), resnet(50, 224, 1000)
    limits = growth_limits(initial, 4.0, None, 64, 4)
    parents, seen = [initial], {initial.hash}
    store.save(initial)
    yield initial.hash, None, ()
    while len(seen) < number:
        parent = rng.choice(parents)
        child, morphs = parent, list[dict[str, str | int]]()
        for _ in range(rng.randint(1, 3)):
            morph, child = random_morph(child, rng)
            morphs.append(morph_data(morph))
        if child.hash in seen or limits.refusal(child) is not None:
            continue
        seen.add(child.hash)
        _replace_one(parents, child, rng)
        store.save(child)
        yield child.hash, parent.hash, tuple(morphs)


def _replace_one(parents: list[Architecture], child: Architecture, rng: random.Random) -> None:
    if len(parents) < PARENTS:
        parents.append(child)
    else:
        parents[rng.randrange(PARENTS)] = child


def _entries(replicas: int, trials: int, made: list[Made]) -> Iterator[Entry]:
    """All replicas train at once: the trials of one turn begin, and then they are over."""
    rng = random.Random(7)
    for first in range(1, trials + 1, replicas):
        turn = range(first, min(first + replicas, trials + 1))
        for trial in turn:
            name, parent, morphs = made[(trial - 1) % len(made)]
            yield Began(
                trial=trial,
                replica=trial % replicas,
                round=first // replicas + 1,
                architecture=name,
                parent=parent,
                morphs=morphs,
                point=trial % 3,
                hyperparameters={
                    "batch_size": 448,
                    "learning_rate": 0.1,
                    "momentum": rng.uniform(0.5, 0.99),
                    "label_smoothing": 0.1,
                },
            )
        for trial in turn:
            best = rng.uniform(0.5, 0.78)
            correct = (round(50_000 * best * (1 - 0.6**epoch)) for epoch in range(1, EPOCHS + 1))
            yield Over(
                trial=trial,
                how="completed",
                epochs=tuple(range(1, EPOCHS + 1)),
                qualities=tuple(number / 50_000 for number in correct),
            )


def read(root: Path) -> dict[str, float]:
    """Read everything as a new agent does, then look again; only for a process of its own."""
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in ("open", "os.listdir") else None)
    paths = open_run(root)
    before, bytes_before = time.process_time(), _bytes_read()
    knowledge = Knowledge(paths)
    knowledge.follow(PRIMARY)
    knowledge.read()
    knowledge.ranked(), knowledge.tried(SPACE), knowledge.trainings(), knowledge.points_started()
    cold_s, read_mb = time.process_time() - before, (_bytes_read() - bytes_before) / 1e6
    opened.clear()
    before = time.process_time()
    knowledge.read()
    look_s, files = time.process_time() - before, len(opened)
    read_peak_mb = _peak_mb()
    before = time.process_time()
    knowledge.observations()
    return {
        "agent_cold_cpu_s": cold_s,
        "agent_read_mb": read_mb,
        "look_files_opened": files,
        "look_cpu_s": look_s,
        "agent_digest_memory_mb": read_peak_mb,
        "agent_outlines_cpu_s": time.process_time() - before,
        "agent_memory_mb": _peak_mb(),
    }


def _bytes_read() -> int:
    """Bytes that this process has read, from files or the page cache."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def _peak_mb() -> float:
    """The most memory that this process had resident."""
    # Not ru_maxrss: that begins with the memory of the process that this one was forked from.
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024 / 1e6


def measure(
    scratch: Path, replicas: int = REPLICAS, trials: int = TRIALS, architectures: int = ARCHITECTURES
) -> dict[str, float]:
    """Seconds of CPU, megabytes read and resident, and files that a look with nothing new opens."""
    paths = generate(scratch / "agent", replicas, trials, architectures)
    command = [sys.executable, "-m", "benchmarks.scale.agent", "--read", str(paths.root)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def main() -> None:
    """Generate and print, or read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--architectures", type=int, default=ARCHITECTURES)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read is not None:
        print(json.dumps(read(arguments.read)))
        return
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(measure(Path(name), REPLICAS, arguments.trials, arguments.architectures), indent=2))


if __name__ == "__main__":
    main()
