"""The verb `aiperf profile`: trains a few steps under TensorFlow's profiler, in a child process.

The result is a file that the analysis prints and draws.
"""

from __future__ import annotations

import argparse
import atexit
import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from aiperf.cli.command import Command, add_format, output_options, whole_number
from aiperf.config.sections import Precision
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import EXIT_DONE, AiperfError, EnvironmentNotReadyError, UsageError
from aiperf.history.reading import read_ledger
from aiperf.processes import python_module
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import open_run
from replica.profile.settings import ProfileSettings

DRAWING_VERB = "report-profile"
"""The verb that prints and draws the result; it is not in the help."""


def _configure(parser: argparse.ArgumentParser) -> None:
    positive = whole_number(1)
    parser.add_argument("run", nargs="?", type=Path, metavar="DIR", help="run directory; without it, ResNet-50")
    parser.add_argument("--trial", type=int, metavar="N", help="the trial of the run (default: its best)")
    parser.add_argument("--dataset", default="digits", metavar="NAME", help="without a run: the data set (digits)")
    parser.add_argument("--data-dir", metavar="DIR", help="without a run: directory of the data set")
    parser.add_argument("--synthetic", action="store_true", help="images made on the device: no input pipeline")
    parser.add_argument("--batch-size", type=positive, metavar="N", help="images per step (default: the trial's)")
    parser.add_argument(
        "--precision", choices=("float32", "mixed_bfloat16", "mixed_float16"), help="default: the trial's"
    )
    parser.add_argument(
        "--xla", action="store_true", help="compile the step; fused operations have no names of their own"
    )
    parser.add_argument("--steps", type=positive, default=5, metavar="N", help="steps to record (default: %(default)s)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write profile.json, .html and the figure")
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    folder = tempfile.TemporaryDirectory(prefix="aiperf-")
    # The follow-up still reads the result in it.
    atexit.register(folder.cleanup)
    arguments.result = Path(folder.name) / "profile.json"
    if arguments.trial is not None and arguments.run is None:
        raise UsageError("--trial names a trial of a run: name its directory, too")
    _profile(_of_run(arguments) if arguments.run is not None else _of_options(arguments))
    return EXIT_DONE


def _of_options(arguments: argparse.Namespace) -> ProfileSettings:
    config = load_config(overrides={"run.dataset": arguments.dataset, "run.data_dir": arguments.data_dir})
    return _settings(arguments, config, config.batch_size, "float32")


def _of_run(arguments: argparse.Namespace) -> ProfileSettings:
    paths = open_run(arguments.run)
    config = read_manifest(paths).config
    trials = read_ledger(paths).trials
    started = {number: trial for number, trial in trials.items() if trial.started is not None}
    if not started:
        raise UsageError(f"{arguments.run}: no trial has started")
    best = max(started, key=lambda number: (started[number].quality or 0.0, -number))
    number = best if arguments.trial is None else arguments.trial
    body = started[number].started if number in started else None
    if body is None:
        raise UsageError(f"{arguments.run}: there is no started trial {number}; the last is {max(started)}")
    batch_size = int(body.hyperparameters.get("batch_size", config.batch_size))
    file = paths.architecture(body.architecture).absolute()
    return _settings(arguments, config, batch_size, body.precision, str(file))


def _settings(
    arguments: argparse.Namespace, config: RunConfig, batch_size: int, precision: str, architecture: str | None = None
) -> ProfileSettings:
    values = {
        "output": str(arguments.result),
        "architecture": architecture,
        "dataset": config.run.dataset,
        "data_dir": config.run.data_dir,
        "synthetic_input": arguments.synthetic,
        "batch_size": arguments.batch_size or batch_size,
        "precision": arguments.precision or precision,
        "xla": arguments.xla,
        "steps": arguments.steps,
    }
    try:
        return ProfileSettings.model_validate(values)
    except ValidationError:  # a precision that this version does not have
        known = ", ".join(get_args(Precision))
        raise UsageError(
            f"the trial cannot be profiled: its precision is {values['precision']!r}; known: {known}; choose one with "
            "--precision"
        ) from None


def _profile(settings: ProfileSettings) -> None:
    """Write the profile to the `output`. Raises AiperfError if the steps cannot be trained."""
    if find_spec("tensorflow") is None:
        raise EnvironmentNotReadyError(
            ["TensorFlow is not installed; in the folder of AIPerf's sources: pip install '.[tensorflow]'"]
        )
    done = subprocess.run(
        python_module("replica.profile.step", settings.model_dump_json()),
        capture_output=True, text=True, check=False, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )  # fmt: skip
    if done.returncode != 0:
        raise AiperfError(f"the profile failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")


def _follow_up(arguments: argparse.Namespace) -> list[str]:
    return [DRAWING_VERB, *output_options(arguments), "--", str(arguments.result)]


PROFILE = Command(
    description="Time by kind of operation and phase, and memory by purpose, of a training step.",
    example="aiperf profile runs/first --output runs/first-profile",
    configure=_configure,
    execute=_execute,
    follow_up=_follow_up,
)
