"""The report of a hybrid training against sums by hand, and everything that is written of it."""

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pandas as pd
import pytest

from analysis.output.artifacts import write_report
from analysis.output.figures.hybrid import MOST_BARS, staleness_bars
from analysis.output.page.hybrid import lost_groups, training_rows
from analysis.output.tables import print_report
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.hybrid.parts import HybridPart, StalenessPart
from analysis.results.recomputed_report import check_result
from tests.support.science.hand_made import ScienceRun
from tests.support.science.hybrid import (
    SHARE,
    exchanged,
    served,
    trained,
    two_groups,
    whole_training,
    with_a_group_that_comes_back,
    with_a_lost_group,
)
from tests.unit.analysis.science.runs import run_of_four


def hybrid_of(run: ScienceRun) -> HybridPart:
    part = build_report(read_run(run.paths)).hybrid
    assert part is not None
    return part


def test_sums_of_two_groups_by_hand(tmp_path: Path) -> None:
    report = build_report(read_run(whole_training(tmp_path).complete(25).paths))
    part = report.hybrid
    assert part is not None
    assert (part.groups, part.parameter_servers) == (2, 1)
    assert (part.updates, part.images) == (4 * 63 + 20, 16_000 + 1280)
    assert part.images == report.images_trained
    assert part.staleness.histogram == (2 * 13 + 5, 2 * 90 + 15, 2 * 22, 0, 2)
    assert sum(part.staleness.histogram) == part.updates
    assert (part.staleness.mean, part.staleness.max) == ((195 + 88 + 8) / 272, 4)
    assert (part.computing_s, part.group_s, part.waiting_s) == (13.0, 1.5, 2.5)
    assert (part.computing_share, part.group_share, part.waiting_share) == (13 / 17, 1.5 / 17, 2.5 / 17)
    assert part.bytes_exchanged == 272 * 8000


def test_each_group_and_server_and_training_has_its_own(tmp_path: Path) -> None:
    part = hybrid_of(whole_training(tmp_path).complete(25))
    first, second = part.group_details
    assert (first.group, first.epochs, first.updates, first.images) == (0, 2, 126, 8000)
    assert first.staleness.mean == (50 + 18 + 4) / 63
    assert (second.epochs, second.images, second.waiting_share) == (3, 9280, 2 / 7.5)
    (server,) = part.server_details
    assert (server.server, server.updates, server.busy_share) == (0, 272, 0.1875)
    (trial,) = part.trials
    assert (trial.trial, trial.epochs, trial.groups, trial.updates) == (1, 2, 2, 272)
    assert trial.group_details == part.group_details


def test_a_lost_group_is_told_with_its_reason(tmp_path: Path) -> None:
    run = with_a_lost_group(tmp_path).complete(25)
    part = hybrid_of(run)
    (end,) = part.group_details[1].lost
    assert (end.trial, end.epoch, end.reason, end.returned) == (1, 2, "group 1 was killed by SIGKILL", None)
    assert part.group_details[0].lost == ()
    data = read_run(run.paths)
    report = build_report(data)
    assert part.images == report.images_trained == 2 * SHARE + 640 + SHARE
    page = write_report(tmp_path / "out", data, report)
    assert "Group 1 was lost in epoch 2 of trial 1 (group 1 was killed by SIGKILL)" in page.read_text()
    table = pd.read_csv(page.parent / "tables" / "hybrid_lost_groups.csv")
    (row,) = table.drop(columns="returned").to_dict("records")
    assert row == {"trial": 1, "group": 1, "epoch": 2, "reason": "group 1 was killed by SIGKILL"}


def test_a_group_that_comes_back_is_told_with_its_epoch(tmp_path: Path) -> None:
    part = hybrid_of(with_a_group_that_comes_back(tmp_path).complete(50))
    (end,) = part.group_details[1].lost
    assert (end.epoch, end.returned) == (2, 4)
    (sentence,) = lost_groups(part)
    assert sentence["sentence"].endswith("the others trained on, and it came back in epoch 4.")


def test_the_load_of_a_server_is_weighted_by_the_time_of_its_epochs(tmp_path: Path) -> None:
    run = two_groups(tmp_path).at(60)
    exchanged(run, 1, 0)
    served(run, 1, busy_share=0.125)
    exchanged(run, 2, 0, computing_s=28.0, group_s=1.0, waiting_s=0.25)
    served(run, 2, busy_share=0.8, restarts=2)
    (server,) = hybrid_of(trained(run, 1, 0.7).stop(1).complete(61)).server_details
    assert server.busy_share == pytest.approx((4.75 * 0.125 + 29.25 * 0.8) / 34, rel=1e-12)
    assert server.restarts == 2


def test_a_hybrid_run_without_any_epoch_has_an_empty_part(tmp_path: Path) -> None:
    data = read_run(two_groups(tmp_path).stop(1).complete(25).paths)
    report = build_report(data)
    part = report.hybrid
    assert part is not None
    assert (part.groups, part.updates, part.waiting_share, part.staleness.mean) == (2, 0, None, None)
    assert "No group has reported an epoch" in write_report(tmp_path / "out", data, report).read_text()


def test_a_synchronous_run_has_no_such_part(tmp_path: Path) -> None:
    data = read_run(run_of_four(tmp_path).paths)
    report = build_report(data)
    assert report.hybrid is None
    page = write_report(tmp_path / "out", data, report)
    assert 'id="hybrid"' not in page.read_text()
    assert not list(page.parent.glob("*/hybrid*"))


def test_page_tables_figures_and_terminal_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = read_run(whole_training(tmp_path).complete(25).paths)
    report = build_report(data)
    schema = json.loads(resources.files("analysis").joinpath("report.schema.json").read_text())
    jsonschema.validate(json.loads(report.model_dump_json()), schema)
    page = write_report(tmp_path / "out", data, report)
    text = page.read_text()
    for part in ("hybrid", "hybrid-groups", "hybrid-servers", "hybrid-trials", "plot-staleness", "plot-group-time"):
        assert f'id="{part}"' in text
    tables = {file.stem: pd.read_csv(file) for file in (page.parent / "tables").glob("*.csv")}
    assert tables["staleness"].groupby("trial").updates.sum().to_list() == [272]
    assert tables["hybrid_groups"].images.to_list() == [8000, 9280]
    assert tables["hybrid_servers"].busy_share.to_list() == [0.1875]
    assert tables["hybrid_trials"].waiting_share.to_list() == [2.5 / 17]
    assert (page.parent / "figures" / "hybrid.svg").stat().st_size > 1000
    print_report(report, None)
    shown = capsys.readouterr().out
    for word in ("Hybrid training", "Parameter servers", "14.7 %", "18.8 %"):
        assert word in shown


def test_tables_that_are_cut_keep_the_row_of_all_trainings(tmp_path: Path) -> None:
    rows = training_rows(hybrid_of(whole_training(tmp_path).complete(25)))
    assert [row["trial"] for row in rows] == ["all", "1"]


def test_a_long_tail_of_staleness_is_one_bar(tmp_path: Path) -> None:
    part = hybrid_of(whole_training(tmp_path).complete(25))
    histogram = (*[10] * MOST_BARS, *[1] * 100)
    long = part.model_copy(update={"staleness": StalenessPart(mean=1.0, max=139, histogram=histogram)})
    names, percents = staleness_bars(long)
    assert (len(names), names[-1]) == (MOST_BARS, "39+")
    assert sum(percents) == pytest.approx(100, rel=1e-5)
    assert percents[-1] == pytest.approx(100 * 110 / 500)


def test_a_stored_report_with_another_staleness_is_found(tmp_path: Path) -> None:
    run = whole_training(tmp_path).complete(25)
    data = read_run(run.paths)
    write_report(run.paths.report, data, build_report(data))
    assert check_result(run.paths.root).differences == ()
    stored = json.loads(run.paths.report_json.read_text())
    stored["hybrid"]["staleness"]["mean"] = 0.5
    run.paths.report_json.write_text(json.dumps(stored))
    assert check_result(run.paths.root).differences == ("report.json: hybrid differs",)
