"""The history of a system: what is compared with what, and what is a regression."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiperf.clock import format_utc
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.results.source import RunResult
from analysis.results.trend import COLUMNS, trend, trend_frame
from tests.support.hand_made import T0_MS, HandMadeRun

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Report:
    run = HandMadeRun(tmp_path_factory.mktemp("run"), {"training.max_epochs": 4}).at(0).release(100).at(1)
    run.start_trial(1).at(60).epoch(1, 1).end_trial(1).end(100)
    report = build_report(read_run(run.paths))
    assert report.verdict == "unofficial"
    return report


def result(base: Report, day: int, score: float | None = 100.0, **changes: Any) -> RunResult:
    """The result of a run on that day."""
    fields = {
        "started": format_utc(T0_MS + day * DAY_MS), "score_ops": score, "regulated_score_ops": score,
        "images_trained": 1000, "phases_s": {"search": 5.0, "train": 80.0, "idle": 15.0},
        "verdict": "unofficial" if score is not None else "invalid", **changes,
    }  # fmt: skip
    return RunResult(Path(f"runs/{day}"), base.model_copy(update=fields), True, identity=f"run of day {day}")


def history(base: Report, *scores: float | None) -> list[RunResult]:
    return [result(base, day, score) for day, score in enumerate(scores)]


def worse(results: list[RunResult]) -> dict[str, list[str]]:
    """The measures that got worse by run."""
    (rows,) = trend(results)
    return {row.origin: [item.measure for item in row.regressions] for row in rows if row.regressions}


BOTH = ["score_ops", "regulated_score_ops"]


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([100.0], {}),
        ([100.0, 95.1], {}),
        ([100.0, 94.9], {"runs/1": BOTH}),
        ([100.0, 200.0], {}),
        ([100.0, 100.0, 10.0, 99.0], {"runs/2": BOTH}),
        ([80.0, 100.0, 120.0, 75.0], {}),
        ([80.0, 100.0, 120.0, 40.0], {"runs/3": BOTH}),
        ([100.0, None, 90.0], {"runs/2": BOTH}),
        ([10.0, *[100.0] * 5, 90.0], {"runs/6": BOTH}),
        ([*[100.0] * 5, *[90.0] * 4], {"runs/5": BOTH, "runs/6": BOTH, "runs/7": BOTH}),
    ],
    ids=["one run", "within 5 %", "beyond 5 %", "better", "one odd run does not hide or mark the next",
         "within the spread", "beyond the spread", "an invalid run is skipped", "a better past",
         "a lasting loss becomes the median"],
)  # fmt: skip
def test_a_value_is_compared_with_the_median_of_the_runs_before(
    scores: list[float | None], found: dict[str, list[str]], base: Report
) -> None:
    assert worse(history(base, *scores)) == found


def test_runs_are_ordered_by_time_however_they_are_given(base: Report) -> None:
    given = history(base, 100.0, 80.0, 100.0)
    assert worse(given[::-1]) == worse(given) == {"runs/1": BOTH}


def test_only_the_five_runs_before_count(base: Report) -> None:
    assert worse(history(base, *[200.0] * 6, *[100.0] * 3, 97.0)) == {f"runs/{day}": BOTH for day in (6, 7, 8)}


def test_a_regression_names_value_median_and_limit(base: Report) -> None:
    (rows,) = trend(history(base, 100.0, 110.0, 50.0))
    found = rows[2].regressions[0]
    assert (found.measure, found.value, found.median, found.runs) == ("score_ops", 50.0, 105.0, 2)
    assert found.bound == pytest.approx(105 - 1.96 * 1.4826 * 5)


PHASES: dict[str, tuple[dict[str, float], list[str]]] = {
    "one point of idle time": ({"search": 5.0, "train": 79.2, "idle": 15.8}, []),
    "much idle time": ({"search": 5.0, "train": 75.0, "idle": 20.0}, ["share_idle"]),
    "a new phase": ({"search": 5.0, "train": 78.0, "idle": 15.0, "down": 2.0}, ["share_down"]),
    "more training": ({"search": 1.0, "train": 82.0, "idle": 15.0}, []),
}


@pytest.mark.parametrize("name", PHASES)
def test_shares_of_time_that_grow_are_regressions_unless_it_is_work(name: str, base: Report) -> None:
    phases, found = PHASES[name]
    images = round(1000 * phases["train"] / 80)
    second = result(base, 1, phases_s=phases, images_trained=images)
    assert worse([result(base, 0), second]) == ({"runs/1": found} if found else {})


def test_slower_training_is_a_regression_though_the_score_holds(base: Report) -> None:
    assert worse([result(base, 0), result(base, 1, images_trained=900)]) == {"runs/1": ["images_per_second"]}


@pytest.mark.parametrize(
    "changes",
    [{"name": "other"}, {"replicas": 2}, {"accelerators": 8}, {"run.duration": 50.0}, {"training.input": "synthetic"}],
)
def test_another_system_is_another_series(changes: dict[str, Any], base: Report) -> None:
    other = dict(changes)
    for key in [key for key in changes if "." in key]:
        section, _, name = key.partition(".")
        configuration = base.configuration
        other = {"configuration": {**configuration, section: {**configuration[section], name: changes[key]}}}
    series = trend([result(base, 0), result(base, 1, score=10.0, **other)])
    assert [len(rows) for rows in series] == [1, 1]
    assert [row.regressions for rows in series for row in rows] == [(), ()]
    assert series[0][0].arrangement != series[1][0].arrangement or series[0][0].system != series[1][0].system
    assert "digits, trainer " in series[0][0].arrangement


def test_copies_of_a_run_count_once(base: Report) -> None:
    first = result(base, 0)
    (rows,) = trend([first, replace(first, origin=Path("runs/copy")), result(base, 1)])
    assert [row.origin for row in rows] == ["runs/0", "runs/1"]


def test_an_invalid_run_is_shown_without_any_measure(base: Report) -> None:
    (rows,) = trend(history(base, 100.0, None))
    assert rows[1].status == "invalid"
    assert set(rows[1].measures.values()) == {None}
    assert rows[1].phases == {}


def test_the_table_has_one_row_for_each_run_and_a_column_for_each_phase(base: Report) -> None:
    table = trend_frame(trend(history(base, 100.0, 50.0)))
    shares = ["share_search", "share_train", "share_idle"]
    assert list(table.columns) == [*COLUMNS, *shares, "regressions", "origin"]
    assert list(table["regressions"]) == ["", "score_ops, regulated_score_ops"]
    assert list(table["images_per_second"]) == [12.5, 12.5]
