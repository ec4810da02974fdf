"""Rehearsals and predictions of trainings in groups: books, page, the machine of 15PF."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from aiperf.__main__ import main
from aiperf.config.settings import load_config
from aiperf.records.bodies import GroupExchanged, TrialFailed, WorkloadStarted
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.verify import verify
from rehearsal.lifecycle import Rehearsal, conduct
from rehearsal.machine.file import MachineFile
from tests.support.folders import ROOT

HYBRID = ROOT / "docs" / "hybrid.md"

CORI = ["--machine", "cori-9594", "--suite", "science", "--set", "training.groups=9", "--set", "science.batch_size=8"]
WORKLOADS = {"hepcnn": ("6", "10m"), "climate-semi": ("14", "2h")}
"""Servers, and the time that is given."""


def cori(workload: str) -> list[str]:
    servers, duration = WORKLOADS[workload]
    return [*CORI, "--workload", workload, "--set", f"training.parameter_servers={servers}", "--duration", duration]


def bodies_of(root: Path) -> list[Any]:
    return [record.body for record in HistoryReader(RunPaths(root)).read_new().records]


@pytest.fixture(scope="module")
def hep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of the HEP network by 9,594 ranks in nine groups."""
    root = tmp_path_factory.mktemp("cori") / "run"
    assert main(["rehearse", *cori("hepcnn"), "--output", str(root)]) == 0
    return root


def test_a_rehearsal_of_groups_passes_all_checks(hep: Path) -> None:
    assert verify(RunPaths(hep)) == []
    report = build_report(read_run(RunPaths(hep)))
    assert (report.status, report.ranks) == ("SIMULATED", 9594)
    part = report.hybrid
    assert part is not None
    assert (part.groups, part.parameter_servers, len(part.server_details)) == (9, 6, 6)
    assert part.staleness.mean == pytest.approx(8, abs=0.1)
    assert part.images == sum(group.images for group in part.group_details) == report.images_trained
    assert report.cost is not None
    assert report.cost.node_hours == pytest.approx(9594 * report.duration_s / 3600, rel=0.01)


def test_its_page_shows_groups_and_servers_and_says_that_nothing_was_trained(hep: Path) -> None:
    page = (hep / "report" / "report.html").read_text()
    assert "SIMULATED" in page
    assert 'id="hybrid"' in page
    assert "Cori, 9,594 Xeon Phi nodes" in page


def test_its_data_are_those_that_the_workload_needs_and_nobody_has(hep: Path) -> None:
    (started,) = (body for body in bodies_of(hep) if isinstance(body, WorkloadStarted))
    assert started.generated
    assert (started.size, started.dataset) == ("official", "hep-224")


def machine_of(**failures: float) -> MachineFile:
    return MachineFile.model_validate(
        {
            "node": {"accelerators": 8},
            "step": {"operations_per_s": 1e14, "spread": 0.05, "rank_spread": 0.05},
            "servers": {"seconds": 0.01, "bytes_per_s": 1e10},
            "failures": failures,
        }
    )


def test_a_rank_that_dies_costs_its_group_or_with_group_0_the_training(tmp_path: Path) -> None:
    config = load_config(
        overrides={
            "run.replicas": 2,
            "run.duration": "2h",
            "training.trainer": "simulated",
            "search.strategy": "random",
            "search.hpo": "random",
            "training.groups": 4,
            "training.parameter_servers": 3,
            "training.max_epochs": 6,
        }
    )
    conduct(tmp_path / "run", Rehearsal(config, machine_of(rank_mtbf_h=4.0)))
    paths = RunPaths(tmp_path / "run")
    assert verify(paths) == []
    bodies = bodies_of(tmp_path / "run")
    lost = [body for body in bodies if isinstance(body, GroupExchanged) and body.lost is not None]
    failed = [body for body in bodies if isinstance(body, TrialFailed)]
    assert lost
    assert {body.group for body in lost} <= {1, 2, 3}
    assert [body for body in bodies if isinstance(body, GroupExchanged) and body.returned]
    assert {body.kind for body in failed} == {"rank_lost"}
    assert build_report(read_run(paths)).status == "SIMULATED"


def test_groups_that_cannot_share_the_ranks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--machine", "h100-8x8", "--set", "training.groups=3", "--duration", "10m"]
    assert main(["rehearse", *words, "--output", str(tmp_path / "run")]) == 2
    assert "3 groups cannot share the 8 accelerators of a replica evenly" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def predicted(workload: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["predict", *cori(workload), "--seeds", "1", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    return dict(row)


def rows_of(section: str) -> dict[str, list[str]]:
    """The rows of the first table of a section of the page, by their first cell."""
    text = HYBRID.read_text().partition(section)[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


def figures(cells: list[str]) -> list[float]:
    return [float(re.findall(r"\d+\.?\d*", cell)[0]) for cell in cells]


def test_the_page_has_the_figures_that_the_machine_of_15pf_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    rows, found = rows_of("## Deep Learning at 15PF"), [predicted(name, capsys) for name in WORKLOADS]
    scores = [row["score_ops"]["value"] / 1e15 for row in found]
    assert figures(rows["predicted score, PFLOP/s"]) == pytest.approx(scores, abs=0.05)
    exchanges = [row["exchange"] for row in found]
    for name, key in (
        ("in the group", "group_share"),
        ("waiting for servers", "waiting_share"),
        ("busiest server", "busy_share"),
    ):
        assert figures(rows[name]) == pytest.approx([100 * each[key]["value"] for each in exchanges], abs=0.05)
    assert figures(rows["mean staleness"]) == pytest.approx([e["staleness"]["value"] for e in exchanges], abs=0.005)
    assert figures(rows["groups that saturate it"]) == [each["saturated_groups"] for each in exchanges]
    assert figures(rows["the paper's peak, PFLOP/s"]) == [11.73, 15.07]
    assert all(row["error"] is row["regulated_score_ops"] is None for row in found)
