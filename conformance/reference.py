"""This project behind the protocol of the conformance kit: `python -m conformance.reference`."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiperf.errors import ArchitectureError, UncountedLayerError
from aiperf.network.json_files import read_architecture
from aiperf.network.operations import count as count_of
from aiperf.rules.prediction import predicted_accuracy
from aiperf.rules.rounds import epoch_out_of_patience, plan_round
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import open_run
from aiperf.wire.messages import Job
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from replica.search.planner import Memory, Planner
from search_space.morphisms import morph_data

Answer = dict[str, Any]


def count(request: Mapping[str, Any]) -> Answer:
    """Operations of one image through the network of a file."""
    try:
        counted = count_of(read_architecture(Path(request["network"])))
    except (ArchitectureError, UncountedLayerError):
        return {"refused": True}
    return {"forward": counted.operations.forward, "backward": counted.operations.backward}


def schedule(request: Mapping[str, Any]) -> Answer:
    """Epochs and patience of a round, and the epoch at which a training of it stops early."""
    plan = plan_round(request["round"], request["max_epochs"])
    stopped = epoch_out_of_patience(request["accuracies"], plan.patience)
    return {"epochs": plan.epochs, "patience": plan.patience, "predicts": plan.predicts, "stops_after": stopped}


def predict(request: Mapping[str, Any]) -> Answer:
    """The accuracy that a training of a warm-up round reports to the search."""
    accuracies = dict(enumerate(request["accuracies"], start=1))
    return {"predicted": predicted_accuracy(accuracies, request["max_epochs"])}


def propose(request: Mapping[str, Any]) -> Answer:
    """The next training of a replica by the history of a run."""
    with tempfile.TemporaryDirectory() as folder:
        paths = open_run(Path(shutil.copytree(request["run"], Path(folder, "run"))))
        planner = Planner(request["replica"], read_manifest(paths).config, paths, Memory())
        plan = planner.plan(Job(**request["job"]))
    return {
        "architecture": plan.proposal.architecture.hash,
        "parent": plan.proposal.parent,
        "morphs": [morph_data(morph) for morph in plan.proposal.morphs],
        "hyperparameters": dict(plan.hyperparameters),
    }


def check(request: Mapping[str, Any]) -> Answer:
    """The score and the status of a run, the rules that it does not meet, its damaged files."""
    data = read_run(open_run(Path(request["run"])))
    report = build_report(data)
    return {
        "status": report.status,
        "rules": [item.rule for item in report.violations],
        "damaged": sorted({damage.file for damage in data.damages}),
        "operations": report.operations_total,
        "error": report.error,
        "score": report.score_ops,
        "regulated": report.regulated_score_ops,
        "timeline": [[point.t_s, point.ops] for point in report.timeline],
    }


TASKS: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
    "count": count,
    "schedule": schedule,
    "predict": predict,
    "propose": propose,
    "check": check,
}


def answer(request: Mapping[str, Any]) -> Answer:
    """The answer to a request."""
    return TASKS[request["task"]](request)


def main() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
