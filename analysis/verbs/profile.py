"""The verb `aiperf profile`: the workload of a training step, by TensorFlow's profiler in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from aiperf.cli.command import Command, add_format
from aiperf.cli.units import si
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import EXIT_DONE, AiperfError, EnvironmentNotReadyError, UsageError
from aiperf.files import write_atomically
from aiperf.processes import python_module
from aiperf.run_directory.paths import open_run
from analysis.output.artifacts import save_drawing
from analysis.output.figures.profile import profile_chart
from analysis.output.pages import render
from analysis.output.tables import open_console
from analysis.reading.run_data import read_run

MOST_ROWS = 25


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", type=Path, metavar="DIR", help="run directory; without it, ResNet-50")
    parser.add_argument("--trial", type=int, metavar="N", help="the trial of the run (default: its best)")
    parser.add_argument("--dataset", default="digits", metavar="NAME", help="without a run: the data set (digits)")
    parser.add_argument("--data-dir", metavar="DIR", help="without a run: where the data set is")
    parser.add_argument("--synthetic", action="store_true", help="images made on the device: no input pipeline")
    parser.add_argument("--batch-size", type=int, metavar="N", help="images of a step (default: the trial's)")
    parser.add_argument(
        "--precision", choices=("float32", "mixed_bfloat16", "mixed_float16"), help="default: the trial's"
    )
    parser.add_argument(
        "--xla", action="store_true", help="compile the step; fused operations have no names of their own"
    )
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps to record (default: %(default)s)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write profile.json, .html and the figure")
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    settings = _of_run(arguments) if arguments.run is not None else _of_options(arguments)
    if settings["batch_size"] < 1 or arguments.steps < 1:
        raise UsageError("--batch-size and --steps must be at least 1")
    result = _profile({**settings, "steps": arguments.steps, "xla": arguments.xla})
    if arguments.output is not None:
        _write(arguments.output, result)
    if arguments.format == "json":
        print(json.dumps(result, indent=2))  # noqa: T201
    else:
        _print(result)
    return EXIT_DONE


def _of_options(arguments: argparse.Namespace) -> dict[str, Any]:
    config = load_config(overrides={"run.dataset": arguments.dataset, "run.data_dir": arguments.data_dir})
    return _settings(config, arguments, config.batch_size, "float32")


def _of_run(arguments: argparse.Namespace) -> dict[str, Any]:
    paths = open_run(arguments.run)
    data = read_run(paths)
    started = {number: trial for number, trial in data.ledger.trials.items() if trial.started is not None}
    if not started:
        raise UsageError(f"{arguments.run}: no trial has started")
    best = max(started, key=lambda number: (started[number].accuracy or 0.0, -number))
    number = best if arguments.trial is None else arguments.trial
    body = started[number].started if number in started else None
    if body is None:
        raise UsageError(f"{arguments.run}: there is no started trial {number}; the last is {max(started)}")
    batch = int(body.hyperparameters.get("batch_size", data.manifest.config.batch_size))
    settings = _settings(data.manifest.config, arguments, batch, body.precision)
    return {**settings, "architecture": str(paths.architecture(body.architecture).absolute())}


def _settings(config: RunConfig, arguments: argparse.Namespace, batch: int, precision: str) -> dict[str, Any]:
    return {
        "dataset": config.run.dataset,
        "data_dir": config.run.data_dir,
        "synthetic_input": arguments.synthetic,
        "batch_size": arguments.batch_size or batch,
        "precision": arguments.precision or precision,
    }


def _profile(settings: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="aiperf-") as folder:
        output = Path(folder) / "profile.json"
        words = json.dumps({**settings, "output": str(output)})
        done = subprocess.run(
            python_module("replica.profile.step", words),
            capture_output=True, text=True, check=False, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )  # fmt: skip
        if "No module named 'tensorflow'" in done.stderr:
            raise EnvironmentNotReadyError(["TensorFlow is not installed here: pip install 'aiperf-hpc[tensorflow]'"])
        if done.returncode != 0:
            raise AiperfError(f"the profile failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
        return dict(json.loads(output.read_bytes()))


def _write(folder: Path, result: dict[str, Any]) -> None:
    drawing = profile_chart(result["operations"], result["memory_bytes"])
    try:
        write_atomically(folder / "profile.json", json.dumps(result, indent=2).encode() + b"\n")
        write_atomically(folder / "profile.html", render("profile.html", profile=result, drawing=drawing).encode())
        save_drawing(folder, drawing)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}"]) from error


def _print(result: dict[str, Any]) -> None:
    console, total = open_console(), sum(item["seconds"] for item in result["operations"])
    table = Table(title="Operations of a training step", title_justify="left")
    for heading in ("operation", "phase", "ms a step", "share", "calls a step"):
        table.add_column(heading, justify="left" if heading in ("operation", "phase") else "right")
    for item in result["operations"][:MOST_ROWS]:
        table.add_row(item["operation"], item["phase"], f"{1000 * item['seconds']:.2f}",
                      f"{100 * item['seconds'] / total:.1f} %", f"{item['calls']:.0f}")  # fmt: skip
    console.print(table)
    memory = Table(title="Memory", title_justify="left")
    memory.add_column("what")
    memory.add_column("bytes", justify="right")
    for name, size in sorted(result["memory_bytes"].items(), key=lambda item: -item[1]):
        memory.add_row(name, si(size, "B"))
    console.print(memory)
    images = result["settings"]["batch_size"]
    rate = images / result["step_s"]
    console.print(
        f"{result['step_s'] * 1000:.1f} ms a step of {images} images: {rate:.1f} images/s, "
        f"{si(rate * result['image_operations'], 'OPS')} while training",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip


PROFILE = Command(
    description="Time by kind of operation and phase, and memory by purpose, of a training step.",
    example="aiperf profile runs/first --output runs/first-profile",
    configure=_configure,
    execute=_execute,
)
