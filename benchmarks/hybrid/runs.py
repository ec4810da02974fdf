"""The runs of the benchmark: the rehearsal of `hepcnn` in groups, by the command line."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOAD = "hepcnn"

BATCH_SIZE = 32
"""Images of a rank and step."""

LEARNING_RATES = {1: 0.002, 2: 0.002}
OTHER_RATE = 0.001
"""Of Adam by the number of groups, tuned; beta 1 and the warm-up are the program's own."""

DELAY = Path(__file__).parent / "delay"


@dataclass(frozen=True, slots=True)
class Plan:
    """What all runs share."""

    folder: Path
    """Runs that are complete stay here, and are not done again."""
    ranks: int = 4
    models: int = 1
    epochs: int = 12
    straggler_epochs: int = 3
    delay_s: float = 0.1
    servers: int = 1
    """Parameter servers of several groups."""
    framework: str = "tensorflow"


def learning_rate(groups: int) -> float:
    """The tuned rate of this many groups."""
    return LEARNING_RATES.get(groups, OTHER_RATE)


def to_quality(plan: Plan, groups: int) -> dict[str, Any]:
    """The report of trainings to the last epoch, each with a seed of its own."""
    settings = {"science.instances": plan.models, "science.max_epochs": plan.epochs}
    name = f"groups-{groups}" + (f"-servers-{plan.servers}" if plan.servers > 1 else "")
    return _report(plan, name, groups, settings, {})


def with_straggler(plan: Plan, groups: int) -> dict[str, Any]:
    """The report of a training whose last rank waits before every step."""
    environment = {
        "BENCHMARK_SLOW_RANK": str(plan.ranks - 1),
        "BENCHMARK_DELAY_S": str(plan.delay_s),
        "PYTHONPATH": os.pathsep.join([str(DELAY), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    return _report(plan, f"straggler-{groups}", groups, {"science.max_epochs": plan.straggler_epochs}, environment)


def _report(
    plan: Plan, name: str, groups: int, settings: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, Any]:
    """The report of a run, which is done unless it is complete."""
    output = plan.folder / name
    file = output / "report" / "report.json"
    if not file.exists():
        command = [
            sys.executable,
            "-m",
            "aiperf",
            "run",
            "--suite",
            "science",
            "--workload",
            WORKLOAD,
            "--rehearsal",
            "--duration",
            "1h",
            "--output",
            str(output),
        ]
        for key, value in _settings(plan, groups, settings).items():
            command += ["--set", f"{key}={value}"]
        variables = {**os.environ, **environment}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if not file.exists():
            raise SystemExit(f"{name} has no report:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if found["ended"] != "completed" or found["failures"]:
        raise SystemExit(f"{output} has not completed: remove it, and begin again")
    return found


def _settings(plan: Plan, groups: int, settings: Mapping[str, object]) -> dict[str, object]:
    # The trainer lets Adam's rate grow with the root of the ranks of a group: not a tuned one.
    rate = learning_rate(groups) / math.sqrt(plan.ranks / groups)
    return {
        "training.groups": groups,
        **({"training.parameter_servers": plan.servers} if groups > 1 else {}),
        "training.precision": "float32",
        "replica.ranks": plan.ranks,
        "training.framework": plan.framework,
        "replica.cpu_threads": 1,
        "science.stop": "deadline",
        "science.batch_size": BATCH_SIZE,
        "science.learning_rate": rate,
        "telemetry.interval": 0,
        **settings,
    }
