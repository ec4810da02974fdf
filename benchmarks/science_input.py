"""The input pipelines of scientific data against a bare loop of h5py and NumPy.

python -m benchmarks.science_input [--rounds 7] [--threads 1,2] [--format json]

Small files are generated. Candidates take turns. A figure is samples per second of CPU time, which
is per core, of all threads of the process; next to it per second of wall time.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.measure import median_values
from replica.trainer.data import open_source
from replica.trainer.data.contract import RankShare
from tests.support.trainings.requests import request_for
from workloads.data import find_set
from workloads.data.manifest import ScienceManifest, read_science_manifest
from workloads.datasets.science.synthesize import ScienceRecipe, synthesize

RECIPES = {
    "ewa_96": ScienceRecipe("ewa", {"train": 256, "validation": 16}, 96, 1),
    "ewa_768": ScienceRecipe("ewa", {"train": 12, "validation": 1}, 768, 1),
    "cos_16": ScienceRecipe("cos", {"train": 2048, "validation": 16}, 16, 1),
    "cos_128": ScienceRecipe("cos", {"train": 12, "validation": 1}, 128, 1),
}
BATCHES = {"ewa_96": 4, "ewa_768": 1, "cos_16": 16, "cos_128": 4}
"""As in the rehearsals, and at official sizes."""

Speed = tuple[float, float]
"""Samples per second of CPU time, and of wall time."""


def bare_loop(folder: Path) -> Callable[[], int]:
    """Read each sample of the training files in order and convert it, nothing else."""
    manifest = read_science_manifest(folder)
    convert, names = (_weather, ("images", "boxes")) if manifest.format == "ewa" else (_cube, ("x", "y"))
    one = partial(convert, manifest)

    def run() -> int:
        count = 0
        for entry in manifest.train.files:
            with h5py.File(folder / entry.name, "r", locking=False) as file:
                inputs, targets = (file[name] for name in names)
                for index in range(entry.images):
                    one(inputs[index], targets[index])
                    count += 1
        return count

    return run


def _weather(manifest: ScienceManifest, image: Any, boxes: Any) -> Any:
    mean = np.array([channel.mean for channel in manifest.channels], np.float32)[:, None, None]
    std = np.array([channel.std for channel in manifest.channels], np.float32)[:, None, None]
    return np.ascontiguousarray(((image - mean) / std).transpose(1, 2, 0)), boxes.astype(np.float32)


def _cube(manifest: ScienceManifest, cube: Any, parameters: Any) -> Any:
    mean = np.array([channel.log_mean for channel in manifest.channels], np.float32)
    std = np.array([channel.log_std for channel in manifest.channels], np.float32)
    return (np.log1p(cube.astype(np.float32)) - mean) / std, parameters


def pipeline(folder: Path, batch: int, threads: int) -> Callable[[], int]:
    """The trainer's training batches: in random order, with augmentation."""
    kind = "ewa" if read_science_manifest(folder).format == "ewa" else "cos"
    source = open_source(request_for(kind, folder, parallel_decode=threads), find_set(kind, folder))
    return lambda: sum(len(inputs) for inputs, _ in source.train_batches(batch, 1, 1, RankShare()))


def measured(run: Callable[[], int], spent: dict[str, list[Speed]], name: str) -> float:
    """Speed by CPU time; both speeds go into `spent`."""
    cpu, wall = time.process_time(), time.perf_counter()
    count = run()
    speed = count / (time.process_time() - cpu), count / (time.perf_counter() - wall)
    spent.setdefault(name, []).append(speed)
    return speed[0]


def compare(which: str, rounds: int, threads: list[int]) -> dict[str, float]:
    """Speeds of all candidates on files of a recipe, and their ratios to the bare loop."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        synthesize(RECIPES[which], folder, lambda done, total: None, workers=2)
        candidates = {"bare_loop": bare_loop(folder)}
        candidates |= {f"pipeline_{count}": pipeline(folder, BATCHES[which], count) for count in threads}
        spent: dict[str, list[Speed]] = {}
        turns = {name: partial(measured, run, spent, name) for name, run in candidates.items()}
        speeds = median_values(turns, rounds)
    found = {f"{name}_per_cpu_s": value for name, value in speeds.items()}
    found |= {f"{name}_per_s": statistics.median(wall for _, wall in values[1:]) for name, values in spent.items()}
    found |= {f"{name}_ratio": speeds[name] / speeds["bare_loop"] for name in candidates if name != "bare_loop"}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default=",".join(RECIPES))
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    threads = [int(text) for text in arguments.threads.split(",")]
    found = {name: compare(name, arguments.rounds, threads) for name in arguments.only.split(",")}
    if arguments.format == "json":
        print(json.dumps(found))
        return
    for name, values in found.items():
        print(name)
        for what, value in values.items():
            print(f"  {what:28} {value:12.2f}")


if __name__ == "__main__":
    main()
