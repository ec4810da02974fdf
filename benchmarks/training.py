"""Training at full strength, as ratios.

The trainer against a bare fit, the pipeline against a bare decode loop, a run's busy accelerators,
and what warming up the next trial gains.

python -m benchmarks.training [--only step_224,step_32,input,busy] [--rounds 5] [--format json]

With `--framework tensorflow,jax,torch`: the trainer's step on each of them against the best loop
written in it (benchmarks/gpu.py), at 224 x 224 and 32 x 32, or at one `--size` and `--batch`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiperf.frameworks import use_onednn

PARTS = ("step_224", "step_32", "input", "busy")

STEADY = ("run.dataset=digits", "search.hpo_first_round=1", "search.hpo_points=5", "training.max_epochs=16")
"""Trainings of four epochs, one round of six: as many trials of 30 s and more as fit into the run.
"""


def call(module: str, *words: object) -> dict[str, float]:
    """Run a benchmark module in a process of its own, and read what it prints."""
    command = [sys.executable, "-m", module, *map(str, words)]
    use_onednn()  # as trainers do
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True, text=True)
    return {name: float(value) for name, value in json.loads(result.stdout.splitlines()[-1]).items()}


def step_224(rounds: int) -> dict[str, Any]:
    """ResNet-50 at 224 x 224."""
    speeds = call("benchmarks.trainings.throughput", 224, 16, 3, rounds, os.cpu_count())
    ratio = speeds["trainer_float32"] / speeds["fit_float32"]
    return {
        "step_ratio_224": ratio,
        "best_precision_ratio": speeds["trainer_bfloat16"] / speeds["fit_float32"],
        "step_224_images_per_s": speeds,
    }


def step_32(rounds: int) -> dict[str, Any]:
    """ResNet-50 on the digits."""
    speeds = call("benchmarks.trainings.throughput", 32, 64, 0, rounds, os.cpu_count())
    return {"step_ratio_32": speeds["trainer_float32"] / speeds["fit_float32"], "step_32_images_per_s": speeds}


def synthesize(folder: Path, images: int) -> None:
    """Shards of JPEGs of the usual size."""
    make = [sys.executable, "-m", "aiperf", "dataset", "synthesize", str(folder), "--train", str(images)]
    subprocess.run([*make, "--validation", "32"], check=True, capture_output=True)


def input_pipeline(rounds: int) -> dict[str, Any]:
    """The pipeline alone, and in front of the training step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        synthesize(folder, 1536)
        decoding = call("benchmarks.trainings.input_pipeline", "decode", folder, rounds * 2)
        few = Path(name) / "few"
        synthesize(few, 128)
        steps = call("benchmarks.trainings.input_pipeline", "step", few, rounds)
    return {
        "input_ratio": decoding["pipeline"] / decoding["bare_loop"],
        "input_ratio_without_tensorflow": decoding["without_tensorflow"] / decoding["bare_loop"],
        "input_images_per_s_and_core": decoding,
        "input_step_ratio": steps["shards"] / steps["synthetic"],
        "input_step_images_per_s": steps,
    }


def steady_run(duration: str, warm_up: bool) -> dict[str, Any]:
    """Do a run of real training; give its report."""
    with tempfile.TemporaryDirectory() as name:
        words = ["run", "--duration", duration, "--output", f"{name}/run"]
        settings = [*STEADY, f"replica.warm_up={str(warm_up).lower()}"]
        overrides = [word for setting in settings for word in ("--set", setting)]
        subprocess.run([sys.executable, "-m", "aiperf", *words, *overrides], check=True, capture_output=True)
        return dict(json.loads((Path(name) / "run/report/report.json").read_text(encoding="utf-8")))


def busy(rounds: int) -> dict[str, Any]:
    """Two runs of one replica, with and without warming up the next trial."""
    warm, cold = steady_run("6m", True), steady_run("6m", False)
    (replica,) = warm["replica_details"]
    return {
        "busy_fraction": replica["busy_fraction"],
        "busy_fraction_without_warm_up": cold["replica_details"][0]["busy_fraction"],
        "overlap_ops_ratio": warm["score_ops"] / cold["score_ops"],
        "busy_trials": sum(trial["state"] != "failed" for trial in warm["trials"]),
        "busy_phases_s": replica["phases_s"],
    }


def framework_step(name: str, size: int, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The trainer's step on a framework against its best bare loop."""
    rounds, precision = arguments.rounds, arguments.precision
    steps = 3 if size >= 128 and batch <= 16 else 24
    speeds = call(
        "benchmarks.trainings.frameworks",
        name,
        size,
        batch,
        steps,
        rounds,
        precision,
        *(["cpu"] if arguments.cpu_time else []),
    )
    own = speeds.pop("trainer")
    best = max(speeds, key=lambda loop: speeds[loop])
    return {
        "framework": name,
        "size": size,
        "batch": batch,
        "precision": precision,
        "images_per_s": own,
        "bare_images_per_s": speeds[best],
        "bare_loop": best,
        "ratio": own / speeds[best],
    }


MEASURES = {"step_224": step_224, "step_32": step_32, "input": input_pipeline, "busy": busy}


def compare_frameworks(arguments: argparse.Namespace) -> int:
    """Measure and print a row for each framework, size and batch."""
    jobs = [(224, 16), (32, 64)]
    if arguments.size:
        jobs = [(arguments.size, int(batch)) for batch in (arguments.batch or "64").split(",")]
    rows = [
        framework_step(name, size, batch, arguments) for size, batch in jobs for name in arguments.framework.split(",")
    ]
    if arguments.format == "json":
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print("  ".join(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    return 0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each candidate (default: %(default)s)")
    parser.add_argument("--framework", help="measure only steps, on these frameworks")
    parser.add_argument("--size", type=int, help="with --framework: side of an image (default: 224 and 32)")
    parser.add_argument("--batch", default="", help="with --size: images of a step, separated by commas")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--cpu-time", action="store_true", help="with --framework: CPU seconds of one thread")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    if arguments.framework:
        return compare_frameworks(arguments)
    found: dict[str, Any] = {}
    for part in arguments.only.split(","):
        found.update(MEASURES[part](arguments.rounds))
    if arguments.format == "json":
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:32} {value:.3f}" if isinstance(value, float) else f"{name:32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
