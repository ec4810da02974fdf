"""Hand-made runs of a series."""

import json
from pathlib import Path

from analysis.results.source import RunResult, read_result
from tests.support.hand_made import HandMadeRun


def one_run(root: Path, replicas: int, epochs: int, devices: int) -> RunResult:
    """A run with a node for each replica, which have this many devices each."""
    run = (
        HandMadeRun(root, {"run.replicas": replicas, "run.launcher": "ssh", "training.max_epochs": 12})
        .at(0)
        .release(100, replicas=replicas)
    )
    run.at(1).start_trial(1)
    for epoch in range(1, epochs + 1):
        run.at(10 * epoch).epoch(1, epoch)
    nodes = {str(replica): {"host": f"n{replica}", "accelerators": devices} for replica in range(replicas)}
    run.paths.system.write_text(json.dumps(nodes))
    run.end(100)
    return read_result(root)
