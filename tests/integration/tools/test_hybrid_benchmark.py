"""The measures of `benchmarks.hybrid` by hand, and the hook that makes a rank slow."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import asdict

from aiperf.records.bodies import GroupExchanged
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from benchmarks import updates
from benchmarks.hybrid import measures, messages, overlap, staleness
from benchmarks.hybrid.figure import write_figure
from benchmarks.hybrid.runs import DELAY
from replica.trainer.servers.zeromq import KEYS
from replica.trainer.simulated_groups import GroupPace, ServerPace
from tests.support.folders import ROOT
from tests.support.science.hand_made import ScienceRun
from tests.support.science.hybrid import whole_training


def report_of(run: ScienceRun) -> measures.Report:
    return dict(build_report(read_run(run.paths)).model_dump())


@pytest.fixture
def hybrid(tmp_path: Path) -> measures.Report:
    report = report_of(whole_training(tmp_path / "hybrid").complete(25))
    return report | {"workloads": [part for part in report["workloads"] if part["models"]]}


def test_what_a_quality_took(hybrid: measures.Report) -> None:
    found = measures.to_quality(hybrid, 0.85)
    assert (found["time_to_quality_s"], found["epochs_to_quality"], found["images_to_quality"]) == (19.0, 2, 17_280)
    assert found["staleness_mean"] == (195 + 88 + 8) / 272
    assert measures.to_quality(hybrid, 0.851)["time_to_quality_s"] is None
    assert measures.to_quality(hybrid, 0.8)["epochs_to_quality"] == 1


def test_groups_at_their_own_pace_share_the_images_of_an_epoch(hybrid: measures.Report) -> None:
    first, second = 4000 * 9.5 / 8000, 4000 * 7.5 / 9280
    assert measures.group_epochs_s(hybrid) == [first, second]
    assert measures.epoch_s(hybrid) == pytest.approx(8000 / (4000 / first + 4000 / second), rel=1e-12)


def test_one_group_takes_the_time_of_training(tmp_path: Path) -> None:
    run = ScienceRun(tmp_path, {"science.workloads": ["resnet-hep"], "science.instances": 1}).at(0).ready(60, 0)
    run.at(1).issue(1, "resnet-hep").at(2).begin(1).phase(1, "train").at(12).phase(1, "evaluate")
    run.at(13).measured(1, 1, accuracy=0.7).phase(1, "train").at(33).phase(1, "evaluate")
    report = report_of(run.at(34).measured(1, 2, accuracy=0.9).done(1).complete(40))
    assert measures.epoch_s(report) == 15.0
    assert measures.to_quality(report, 0.85)["staleness_mean"] == 0.0


def test_the_figure_is_there_as_svg_and_png(hybrid: measures.Report, tmp_path: Path) -> None:
    write_figure(tmp_path / "picture", {2: hybrid}, 0.85)
    assert {file.name for file in tmp_path.iterdir() if file.is_file()} == {"picture.svg", "picture.png"}


@pytest.mark.parametrize(("rank", "slow"), [("3", True), ("0", False)])
def test_only_the_named_rank_is_made_slow(rank: str, slow: bool) -> None:
    code = (
        "import sitecustomize, types\n"
        "from replica.trainer.data.contract import RankShare\n"
        "module = types.SimpleNamespace(Epochs=type('Epochs', (), {'train': lambda self, epoch: iter([1, 2])}))\n"
        "waits = []\n"
        "sitecustomize.time = types.SimpleNamespace(sleep=waits.append)\n"
        "sitecustomize.slow(module)\n"
        "epochs = module.Epochs()\n"
        f"epochs._share = RankShare({rank} % 2, 2, {rank} // 2, 2)\n"
        "assert list(epochs.train(1)) == [1, 2]\n"
        "from replica.trainer.training import Epochs\n"
        "print(Epochs.train.__name__, waits)"
    )
    environment = {
        "PYTHONPATH": f"{DELAY}{os.pathsep}{ROOT}",
        "BENCHMARK_SLOW_RANK": "3",
        "BENCHMARK_DELAY_S": "0.5",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ("late [0.5, 0.5]" if slow else "late []")


def test_parameter_servers_and_all_reduce_have_the_same_measures(hybrid: measures.Report, tmp_path: Path) -> None:
    exchanged, images = hybrid["hybrid"]["bytes_exchanged"], hybrid["hybrid"]["images"]
    servers = updates.row_of(hybrid, 2, 1, 0.85)
    assert (servers["updates"], servers["processes"]) == ("1 server", 3)
    assert servers["mb_per_image"] == exchanged / images / 1e6
    assert servers["images_per_s"] == pytest.approx(measures.EPOCH_IMAGES / measures.epoch_s(hybrid))
    assert servers["time_to_quality_s"] == 19.0
    synchronous = updates.row_of(hybrid | {"hybrid": None}, 2, 0, 0.85)
    assert (synchronous["updates"], synchronous["processes"], synchronous["waiting_share"]) == ("all-reduce", 2, 0.0)
    assert set(servers) == set(synchronous) == set(updates.COLUMNS)


def test_a_ring_sends_and_receives_each_part_of_the_gradients_twice_but_for_its_own() -> None:
    assert updates.ring_mb_per_image(1_000_000, 1, 32) == 0
    # 4 ranks: 3 parts of a quarter are sent in each of two rounds, and as many received.
    assert updates.ring_mb_per_image(1_000_000, 4, 1) == pytest.approx(2 * 2 * 3 * 250_000 * 4 / 1e6)


@pytest.mark.parametrize("several", [False, True], ids=["one node", "several nodes"])
def test_an_exchange_of_a_root_and_a_server_is_timed(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, "")  # what the benchmark sets is undone
    assert messages.exchange_ms(1000, 3, several) > 0


def test_a_step_that_sends_its_layers_one_by_one_is_timed() -> None:
    assert overlap.step_ms(overlap.during, 1000, 0.0, 4) > 0


def test_paces_that_are_taken_from_records_give_their_staleness_again() -> None:
    groups = tuple(GroupPace(pace, all_reduce_s=0.1, spread=0.1) for pace in (1.0, 1.1, 1.5))
    played = staleness.Paces(groups, ServerPace(0.2), validation_s=3.0, epochs=6)
    facts = staleness.simulated(played, train_images=6000, step_images=10)
    records = [GroupExchanged(trial=1, **asdict(each)) for each in facts]
    found = staleness.paces_of(records, busy_s=0.2, validation_s=3.0)
    assert [group.computing_s for group in found.groups] == pytest.approx([1.0, 1.1, 1.5], rel=0.01)
    assert all(0.02 < group.spread < 0.3 for group in found.groups)
    again = staleness.simulated(found, train_images=6000, step_images=10)
    real, model = staleness.shares(facts), staleness.shares(again)
    assert staleness.mean_of(model) == pytest.approx(staleness.mean_of(real), rel=0.03)
    assert staleness.distance(real, model) < 0.15
    assert staleness.waiting_s(again) == pytest.approx(staleness.waiting_s(facts), rel=0.2)
    slower = replace(found, groups=(*found.groups[:2], replace(found.groups[2], computing_s=9.0)))
    assert staleness.distance(real, staleness.shares(staleness.simulated(slower, 6000, 10))) > 0.3


def test_the_distance_of_histograms_by_hand() -> None:
    assert staleness.distance([0.5, 0.5], [0.5, 0.25, 0.25]) == 0.25
    assert staleness.distance([1.0], [0.0, 1.0]) == 1.0
    assert staleness.mean_of([0.5, 0.25, 0.25]) == 0.75
