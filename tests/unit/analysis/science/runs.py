"""A run of two workloads with two models each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.results.source import RunResult, evidence_from
from tests.support.science.hand_made import ScienceRun

PRICES = {"price.node_hour": 3.2, "price.kwh": 0.31, "price.currency": "EUR", "price.source": "a list"}
WATTS = {0: (300.0, 110.0), 1: (220.0, 60.0), 2: (410.0, 90.0)}


def run_of_four(root: Path, **overrides: Any) -> ScienceRun:
    """Two models of each workload: one is resumed after a loss, one does not reach its target."""
    run = ScienceRun(root, {**PRICES, **overrides})
    run.at(0).ready(600, -4321, 70_000, 250)
    run.at(1.5).issue(1, "resnet-hep", 0, replica=0).issue(2, "resnet-hep", 1, replica=1)
    run.at(1.75).issue(3, "cosmoflow", 0, replica=2)
    run.at(2).begin(1).phase(1, "build").begin(2).phase(2, "build").begin(3).phase(3, "build")
    run.at(4.25).phase(1, "train").phase(2, "train").phase(3, "train")
    run.at(6).reported(1, 1, 3000).reported(2, 1, 2000).at(9).reported(1, 1, 7000).reported(3, 1, 2048)
    run.at(11.1).measured(1, 1, accuracy=0.81).at(14).measured(2, 1, accuracy=0.8499)
    run.at(15).measured(3, 1, mean_absolute_error=0.41).at(19.037).measured(1, 2, accuracy=0.85).done(1)
    run.at(20).reported(2, 2, 1000).at(23).lose(1)
    run.at(24).issue(4, "resnet-hep", 1, replica=0, resumes=2).at(26).begin(4).phase(4, "train")
    run.at(31).reported(4, 2, 5000).at(33.333)
    run.judged(4, 2, {"accuracy": 0.93}, {"accuracy": 0.868}, accuracy=0.871).done(4)
    run.at(34).measured(3, 2, mean_absolute_error=0.3299).done(3)
    run.at(40).issue(5, "cosmoflow", 1, replica=2).at(41).begin(5, epochs=3).phase(5, "train")
    for epoch, error in enumerate((0.44, 0.3301, 0.35), 1):
        run.at(40 + 7 * epoch).reported(5, epoch, 4000).at(42 + 7 * epoch).measured(5, epoch, mean_absolute_error=error)
    return run.done(5).complete(66).sampled(70, WATTS)


def one_model(root: Path) -> ScienceRun:
    """A run of another system with one model, which reaches its target soon."""
    run = ScienceRun(root, {"science.instances": 1, "run.name": "two"}).at(0).ready(60, 0)
    run.at(1).issue(1, "resnet-hep").at(2).begin(1).phase(1, "train").at(9).measured(1, 1, accuracy=0.9).done(1)
    return run.complete(10)


def officially(results: list[RunResult]) -> list[RunResult]:
    """Results as official ones, each with steps of its own."""
    return [
        replace(
            item,
            report=item.report.model_copy(update={"verdict": "official"}),
            evidence=evidence_from([f"steps {number}".encode()]),
        )
        for number, item in enumerate(results)
    ]
