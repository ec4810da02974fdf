"""The verb `aiperf profile`: trains a few steps under a profiler, in a child process.

The result is a file that the analysis prints and draws.
"""

import argparse
import atexit
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from aiperf.cli.command import Command, add_format, output_options, whole_number
from aiperf.config.sections.base import Precision
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import EXIT_DONE, AiperfError, EnvironmentNotReadyError, UsageError
from aiperf.frameworks import why_not_installed
from aiperf.processes import SAFE_PATH, MemoryKills, describe_exit, python_module
from aiperf.ranks import without_ranks
from aiperf.records.reading import read_ledger
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import open_run
from replica.measure.profile.settings import ProfileSettings, architecture_of, memory_limit
from replica.measure.profile.sweep import parse_sweep, sweep
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.starters import STARTERS, RankRequest, choose_starter
from workloads.networks import NETWORKS

DRAWING_VERB = "report-profile"
"""Verb that prints and draws the result; it is not in the help."""


def _configure(parser: argparse.ArgumentParser) -> None:
    positive = whole_number(1)
    parser.add_argument("run", nargs="?", type=Path, metavar="DIR", help="run directory; without it, ResNet-50")
    parser.add_argument("--trial", type=int, metavar="N", help="the trial of the run (default: its best)")
    parser.add_argument(
        "--workload",
        choices=tuple(NETWORKS),
        metavar="NAME",
        help="scientific network on random data ('aiperf ops' lists them)",
    )
    parser.add_argument("--size", type=positive, metavar="N", help="first side of the input; trains on random data")
    parser.add_argument(
        "--dataset", default="digits", metavar="NAME", help="without a run: the data set (default: digits)"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="without a run: directory of the data set")
    parser.add_argument("--synthetic", action="store_true", help="images made on the device: no input pipeline")
    parser.add_argument(
        "--batch-size", type=positive, metavar="N", help="images per step (default: the trial's; 1 with --workload)"
    )
    parser.add_argument(
        "--precision", choices=("float32", "mixed_bfloat16", "mixed_float16"), help="default: the trial's"
    )
    parser.add_argument("--framework", choices=tuple(FRAMEWORKS), help="default: the run's, else tensorflow")
    parser.add_argument("--xla", action="store_true", help="compile the step; fusions are named by their parts")
    parser.add_argument("--steps", type=positive, default=5, metavar="N", help="steps to record (default: %(default)s)")
    parser.add_argument(
        "--ranks",
        type=positive,
        default=1,
        metavar="N",
        help="processes that train together, to see their communication",
    )
    parser.add_argument(
        "--sweep", metavar="AXIS=N,...", help="memory at several batch sizes (batch=1,2,4) or input sizes (size=32,64)"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write the result as JSON, page and figures")
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    folder = tempfile.TemporaryDirectory(prefix="aiperf-")
    # The follow-up still reads the result in it.
    atexit.register(folder.cleanup)
    settings = _checked(arguments)
    if arguments.sweep is not None:
        arguments.result = Path(folder.name) / "sweep.json"
        axis, values = parse_sweep(arguments.sweep)
        one = settings.model_copy(update={"output": str(Path(folder.name) / "profile.json")})
        found = sweep(one, axis, values, profile_step, memory_limit())
        arguments.result.write_text(json.dumps(found.document()), encoding="utf-8")
    else:
        arguments.result = Path(folder.name) / "profile.json"
        profile_step(settings.model_copy(update={"output": str(arguments.result)}))
    return EXIT_DONE


def _checked(arguments: argparse.Namespace) -> ProfileSettings:
    """Check the options; give the settings. Raises UsageError for those that exclude each other."""
    random = arguments.workload is not None or arguments.size is not None
    if arguments.trial is not None and arguments.run is None:
        raise UsageError("--trial names a trial of a run: name its directory, too")
    if arguments.workload is not None and arguments.run is not None:
        raise UsageError("--workload names a network, and so does the run: name one of them")
    if arguments.ranks > 1 and (random or (arguments.sweep or "").startswith("size")):
        raise UsageError("--ranks trains on a data set: it goes without --workload and --size")
    settings = _of_run(arguments) if arguments.run is not None else _of_options(arguments)
    if settings.framework == "torch" and settings.xla:
        raise UsageError("PyTorch does not compile with XLA: leave --xla out")
    architecture_of(settings)  # here, so that a size that does not fit is refused at once
    return settings


def _of_options(arguments: argparse.Namespace) -> ProfileSettings:
    config = load_config(overrides={"run.dataset": arguments.dataset, "run.data_dir": arguments.data_dir})
    batch_size = 1 if arguments.workload is not None else config.batch_size
    return _settings(arguments, config, batch_size, "float32")


def _of_run(arguments: argparse.Namespace) -> ProfileSettings:
    paths = open_run(arguments.run)
    config = read_manifest(paths).config
    trials = read_ledger(paths).trials
    started = {number: trial for number, trial in trials.items() if trial.started is not None}
    if not started:
        raise UsageError(f"{arguments.run}: no trial has started")
    # Of trials of the same quality the first, whatever their order in the ledger.
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
        "output": "",
        "architecture": architecture,
        "workload": arguments.workload,
        "size": arguments.size,
        "dataset": config.run.dataset,
        "data_dir": config.run.data_dir,
        "synthetic_input": arguments.synthetic,
        "batch_size": arguments.batch_size or batch_size,
        "precision": arguments.precision or precision,
        "xla": arguments.xla,
        "steps": arguments.steps,
        "framework": arguments.framework or config.training.framework,
        "ranks": arguments.ranks,
    }
    try:
        return ProfileSettings.model_validate(values)
    except ValidationError:  # a precision that this version does not have
        known = ", ".join(get_args(Precision))
        raise UsageError(
            f"the trial cannot be profiled: its precision is {values['precision']!r}; known: {known}; choose one with "
            "--precision"
        ) from None


def profile_step(settings: ProfileSettings) -> dict[str, Any]:
    """Profile in a process of its own; give the result, which is also in the `output`.

    Raises AiperfError if the steps cannot be trained.
    """
    reason = why_not_installed(settings.framework)
    if reason is not None:
        raise EnvironmentNotReadyError([reason])
    command = python_module("replica.measure.profile.step", settings.model_dump_json())
    starter = STARTERS.load(choose_starter("auto", settings.ranks, 1, settings.framework))
    kills = MemoryKills()
    done = subprocess.run(
        starter(RankRequest(command, settings.ranks)),
        capture_output=True,
        text=True,
        check=False,
        # Recordings of a process that is killed go with the folder of its result.
        env={
            **without_ranks(),
            **SAFE_PATH,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TMPDIR": str(Path(settings.output).absolute().parent),
        },
    )
    if done.returncode != 0:
        said = " | ".join(done.stderr.strip().splitlines()[-3:])
        memory = "the memory does not suffice" if kills.have_grown() else ""
        raise AiperfError(f"the profile failed: {memory or said or describe_exit(done.returncode)}")
    found: dict[str, Any] = json.loads(Path(settings.output).read_text(encoding="utf-8"))
    return found


def _follow_up(arguments: argparse.Namespace) -> list[str]:
    return [DRAWING_VERB, *output_options(arguments), "--", str(arguments.result)]


PROFILE = Command(
    description="Time by operation, layer and phase, memory by purpose, and hardware counters of a training step.",
    example="aiperf profile runs/first --output runs/first-profile",
    configure=_configure,
    execute=_execute,
    follow_up=_follow_up,
)
