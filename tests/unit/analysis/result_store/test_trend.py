"""The history of a system: what is compared with what, and what is a regression."""

import json
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from aiperf.__main__ import main
from aiperf.screening.outcome import write_outcome
from analysis.results.result_store.facts import AcceptanceFacts, Facts, run_facts, screening_facts
from analysis.results.result_store.schema import schema
from analysis.results.result_store.trend import COLUMNS, Series, TrendDocument, trend, trend_frame
from analysis.results.source import RunResult
from analysis.verbs.trend import trend_page
from tests.support.nodes.screened import screened
from tests.unit.analysis.result_store.made import base, day_of, result, screening


def history(*scores: float | None) -> list[RunResult]:
    return [result(day, score) for day, score in enumerate(scores)]


def series_of(results: Iterable[RunResult]) -> tuple[Series, ...]:
    return trend(Facts(run_facts(each)) for each in results)


def worse(results: list[RunResult]) -> dict[str, list[str]]:
    """The measures that got worse by run."""
    (series,) = series_of(results)
    return {row.origin: [item.measure for item in row.regressions] for row in series.rows if row.regressions}


def spent(day: int, per_joule: float, basis: str) -> RunResult:
    energy = base().energy.model_copy(update={"operations_per_joule": per_joule, "basis": basis})
    return result(day, energy=energy)


def test_operations_per_joule_are_compared_within_one_basis_of_the_energy() -> None:
    sensors, meters = "sensors of accelerators", "meters, Level 2: nodes"
    runs = [spent(0, 100.0, sensors), spent(1, 50.0, meters), spent(2, 30.0, ""), spent(3, 90.0, sensors)]
    assert worse(runs) == {"runs/3": ["operations_per_joule"]}
    (series,) = series_of(runs)
    assert [row.values.get("operations_per_joule") for row in series.rows] == [100.0, 50.0, None, 90.0]
    assert trend_frame([series])["energy_basis"].tolist() == [sensors, meters, "", sensors]


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
    ids=[
        "one run",
        "within 5 %",
        "beyond 5 %",
        "better",
        "one odd run does not hide or mark the next",
        "within the spread",
        "beyond the spread",
        "an invalid run is skipped",
        "a better past",
        "a lasting loss becomes the median",
    ],
)
def test_a_value_is_compared_with_the_median_of_the_runs_before(
    scores: list[float | None], found: dict[str, list[str]]
) -> None:
    assert worse(history(*scores)) == found


def test_runs_are_ordered_by_time_however_they_are_given() -> None:
    given = history(100.0, 80.0, 100.0)
    assert worse(given[::-1]) == worse(given) == {"runs/1": BOTH}


def test_only_the_five_runs_before_count() -> None:
    assert worse(history(*[200.0] * 6, *[100.0] * 3, 97.0)) == {f"runs/{day}": BOTH for day in (6, 7, 8)}


def test_a_regression_names_value_median_and_limit() -> None:
    (series,) = series_of(history(100.0, 110.0, 50.0))
    found = series.rows[2].regressions[0]
    assert (found.measure, found.value, found.median, found.earlier) == ("score_ops", 50.0, 105.0, 2)
    assert found.limit == pytest.approx(105 - 1.96 * 1.4826 * 5)


PHASES: dict[str, tuple[dict[str, float], list[str]]] = {
    "one point of idle time": ({"search": 5.0, "train": 79.2, "idle": 15.8}, []),
    "much idle time": ({"search": 5.0, "train": 75.0, "idle": 20.0}, ["share_idle"]),
    "a new phase": ({"search": 5.0, "train": 78.0, "idle": 15.0, "down": 2.0}, ["share_down"]),
    "more training": ({"search": 1.0, "train": 82.0, "idle": 15.0}, []),
}


@pytest.mark.parametrize("name", PHASES)
def test_shares_of_time_that_grow_are_regressions_unless_it_is_work(name: str) -> None:
    phases, found = PHASES[name]
    images = round(1000 * phases["train"] / 80)
    second = result(1, phases_s=phases, images_trained=images)
    assert worse([result(0), second]) == ({"runs/1": found} if found else {})


def test_slower_training_is_a_regression_though_the_score_holds() -> None:
    assert worse([result(0), result(1, images_trained=900)]) == {"runs/1": ["images_per_second"]}


@pytest.mark.parametrize(
    "changes",
    [{"name": "other"}, {"replicas": 2}, {"accelerators": 8}, {"run.duration": 50.0}, {"training.input": "synthetic"}],
)
def test_another_system_is_another_series(changes: dict[str, Any]) -> None:
    other = dict(changes)
    for key in [key for key in changes if "." in key]:
        section, _, name = key.partition(".")
        configuration = base().configuration
        other = {"configuration": {**configuration, section: {**configuration[section], name: changes[key]}}}
    series = series_of([result(0), result(1, score=10.0, **other)])
    assert [len(each.rows) for each in series] == [1, 1]
    assert [row.regressions for each in series for row in each.rows] == [(), ()]
    assert series[0].arrangement != series[1].arrangement or series[0].system != series[1].system
    assert "digits, trainer " in series[0].arrangement


def test_copies_of_a_run_count_once() -> None:
    first = result(0)
    (series,) = series_of([first, replace(first, origin=Path("runs/copy")), result(1)])
    assert [row.origin for row in series.rows] == ["runs/0", "runs/1"]


def test_an_invalid_run_is_shown_without_any_measure() -> None:
    (series,) = series_of(history(100.0, None))
    assert series.rows[1].status == "invalid"
    assert {*series.rows[1].values} == {"error"}


def test_the_table_has_one_row_for_each_run_and_a_column_for_each_phase() -> None:
    table = trend_frame(series_of(history(100.0, 50.0)))
    shares = ["train", "evaluate", "checkpoint", "search", "start", "build", "storage", "idle", "down"]
    assert list(table.columns) == [*COLUMNS, *(f"share_{name}" for name in shares), "regressions", "origin"]
    assert list(table["regressions"]) == ["", "score_ops, regulated_score_ops"]
    assert list(table["images_per_second"]) == [12.5, 12.5]


# Slow losses: the latest results next to the first ones.


def lost(series: Series) -> dict[str, float]:
    return {change.measure: round(change.change or 0.0, 3) for change in series.worse}


def test_a_loss_that_no_single_result_shows_is_found_over_the_series() -> None:
    (series,) = series_of(history(*(100.0 * 0.99**day for day in range(20))))
    assert not any(row.regressions for row in series.rows), "each is within 5 % of those before"
    assert lost(series).keys() == {"score_ops", "regulated_score_ops"}
    (first,) = (change for change in series.changes if change.measure == "score_ops")
    assert (first.results, first.earlier) == (5, 5)
    assert first.median == pytest.approx(100 * 0.99**2)
    assert first.change == pytest.approx(0.99**15 - 1)


def test_one_odd_result_is_not_a_loss_of_the_series_and_better_is_none_either() -> None:
    for scores in ([100.0] * 6 + [10.0] + [100.0] * 3, [100.0] * 5 + [150.0] * 5):
        (series,) = series_of(history(*scores))
        assert not series.worse
    assert {change.measure for change in series.changes} >= {"score_ops", "images_per_second", "share_idle"}


def test_since_a_day_all_results_before_are_compared_with() -> None:
    facts = [Facts(run_facts(each)) for each in history(100.0, 101.0, 99.0, 90.0, 89.0)]
    (series,) = trend(facts, since=day_of(3))
    assert [row.origin for row in series.rows] == ["runs/3", "runs/4"]
    assert [(change.results, change.earlier, change.worse) for change in series.changes][:1] == [(2, 3, True)]
    assert trend(facts, since=day_of(5)) == ()


def test_series_that_got_worse_come_first() -> None:
    fine = [result(day, name="fine") for day in range(4)]
    worse_ones = [replace(each, identity=f"other {day}") for day, each in enumerate(history(100.0, 100.0, 80.0, 80.0))]
    assert [each.system for each in series_of([*fine, *worse_ones])] == [base().name, "fine"]


# Screenings.


@pytest.fixture(scope="module")
def screenings(tmp_path_factory: pytest.TempPathFactory) -> list[Facts]:
    """Six screenings, in which the memory of one device gets slower, and one node is lost once."""
    found = []
    for day in range(6):
        folder = tmp_path_factory.mktemp("screening")
        outcome = screening(folder, 10 * day, {1: {("gpu5", "triad"): 0.97**day}}, lost=0 if day == 4 else None)
        found.append(screening_facts(Path(f"screened/{day}"), outcome))
    return found


def test_by_node_the_device_that_gets_slower_is_the_only_one_named(screenings: list[Facts]) -> None:
    series = trend(screenings, "node")
    assert [(each.system, each.arrangement[:4], [*lost(each)]) for each in series if each.worse] == [
        ("n001", "gpu5", ["triad"])
    ]
    assert series[0].system == "n001", "it comes first"
    assert len([each for each in series if each.system == "n001"]) == 8


def test_a_lost_node_is_a_row_of_all_its_devices(screenings: list[Facts]) -> None:
    of_node = [each for each in trend(screenings, "node") if each.system == "n000"]
    assert len(of_node) in (8, 9)
    lost_names = {each.system for each in trend(screenings, "node") for row in each.rows if row.status == "lost"}
    assert len(lost_names) == 1
    assert all([row.made for row in each.rows] == sorted(row.made or "" for row in each.rows) for each in of_node)


def test_by_system_a_series_has_the_medians_of_a_kind(screenings: list[Facts]) -> None:
    (series,) = trend(screenings)
    assert (series.kind, series.system, series.worse) == ("screening", "big", ())
    assert [row.status for row in series.rows][:2] == ["0 bad nodes", "0 bad nodes"]
    assert series.rows[4].status != "0 bad nodes"
    assert series.rows[0].values["triad"] == pytest.approx(2.9e12, rel=0.01)


def test_quick_screenings_are_not_compared_with_others(screenings: list[Facts]) -> None:
    half = [
        Facts(msgspec.structs.replace(each.row, quick=place % 2 == 0), each.devices)
        for place, each in enumerate(screenings)
    ]
    assert [len(each.rows) for each in trend(half)] == [3, 3]
    assert all(len(each.rows) == 3 for each in trend(half, "node") if each.system == "n001")


# Acceptances and outputs.


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([(1, False), (2, True)], True),
        ([(2, False), (1, True)], False),
        ([(None, True), (None, False)], False),
        ([(1, False), (None, True)], False),
    ],
    ids=["newest last", "newest first", "of earlier versions: the last", "only one has a time"],
)
def test_the_newest_acceptance_of_a_run_is_shown(given: list[tuple[int | None, bool]], shown: bool) -> None:
    def acceptance(identity: str, day: int | None, accepted: bool) -> Facts:
        return Facts(
            AcceptanceFacts(
                identity=identity,
                origin="a.json",
                run="run of day 0",
                made=day_of(0),
                path="r",
                baseline="b",
                accepted=accepted,
                criteria=1,
                failed="",
                at=day_of(day) if day is not None else None,
            )
        )

    facts = [Facts(run_facts(each)) for each in history(100.0, 100.0)]
    (series,) = trend([*facts, *(acceptance(str(number), *each) for number, each in enumerate(given))])
    assert [row.accepted for row in series.rows] == [shown, None]


def document(series: tuple[Series, ...]) -> TrendDocument:
    return TrendDocument(by="node", since=None, series=series, problems=("a <b>: is no result",))


def test_the_document_fits_its_schema_and_the_file_is_the_classes(screenings: list[Facts]) -> None:
    text = resources.files("analysis").joinpath("trend.schema.json").read_text()
    assert json.loads(text) == schema(), "run: make docs"
    made = document(trend([*screenings, *(Facts(run_facts(each)) for each in history(100.0, 50.0))]))
    jsonschema.validate(json.loads(msgspec.json.encode(made)), schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 2}, schema())


def test_the_page_names_what_got_worse_with_its_change_and_draws_it(screenings: list[Facts]) -> None:
    page = trend_page(document(trend(screenings, "node")))
    table = page[page.index('id="worse"') : page.index("</table>")]
    assert "n001" in table
    assert "n002" not in table
    assert "figure-trend" in page
    assert "a &lt;b&gt;: is no result" in page
    assert 'id="none"' in trend_page(document(trend(screenings[:1])))


def test_paths_of_every_kind_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = screening(tmp_path / "scratch", 0, {})
    folder = tmp_path / "screened"
    folder.mkdir()
    (folder / "screen.json").write_text(write_outcome(outcome))
    report = tmp_path / "report.json"
    report.write_text(base().model_dump_json())
    page = tmp_path / "page.html"
    words = [str(folder), str(folder / "screen.json"), str(report), str(report), "--html", str(page)]
    assert execute(*words, "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted((each["kind"], len(each["rows"])) for each in found["series"]) == [("run", 1), ("screening", 1)]
    assert page.read_text().startswith("<!doctype html>")
    assert execute(*words, "--by", "node") == 0
    shown = capsys.readouterr().out
    assert "n002" in shown
    assert "is the only node" not in shown
    assert execute(*words, "--since", "2020-01-01", "--format", "csv") == 0


def test_by_node_one_node_and_no_screening_are_hints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "screen.json").write_text(write_outcome(screened(tmp_path, 1, {}, {})))
    assert execute(str(tmp_path / "screen.json"), "--by", "node") == 0
    assert "n000 is the only node: add screenings of others" in capsys.readouterr().out
    (tmp_path / "report.json").write_text(base().model_dump_json())
    assert execute(str(tmp_path / "report.json"), "--by", "node") != 0
    assert "there are no screenings (aiperf screen), whose nodes --by node shows" in capsys.readouterr().err


def execute(*words: str) -> int:
    return main(["trend", *words])
