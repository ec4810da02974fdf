"""Phases of replicas in every kind of run: they sum to its duration, and dead time is no work."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiperf.cli.units import percent
from aiperf.records.bodies import PhaseBegan, RunEnded
from aiperf.wire.messages import Phase
from analysis.output.page.view import report_page, waits_in_words
from analysis.output.tables import _replicas
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from analysis.report.phases import WAITS
from analysis.results.status import run_status
from analysis.verbs.status import _status_table
from tests.support.hand_made import T0_MS, HandMadeRun
from tests.support.science.hybrid import whole_training


def phase(run: HandMadeRun, t_s: float, name: Phase, replica: int = 0) -> HandMadeRun:
    run.at(t_s).replicas[replica].append(PhaseBegan(replica=replica, trial=1, phase=name))
    return run


def working(root: Path, replicas: int = 1) -> HandMadeRun:
    return phase(HandMadeRun(root).at(0).release(100, replicas=replicas), 10, "train")


def interrupted(root: Path) -> HandMadeRun:
    run = working(root).at(20)
    run.primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 20_000))
    phase(run, 21, "checkpoint")
    return phase(run.at(60).resume().at(65).rejoin(), 70, "train").end(100)


def killed(root: Path) -> HandMadeRun:
    run = working(root).at(25).progress(1, 1, 100)
    return phase(run.at(60).resume().at(65).rejoin(), 70, "train").end(100)


def lost(root: Path) -> HandMadeRun:
    return working(root, replicas=2).at(40).lose(0).end(100)


def back(root: Path) -> HandMadeRun:
    return phase(working(root).at(40).lose(0).at(50).rejoin(), 55, "train").end(100)


def never_came(root: Path) -> HandMadeRun:
    return working(root).at(0).lose(1, "it did not start").end(100)


def lost_at_once(root: Path) -> HandMadeRun:
    return HandMadeRun(root).at(0).release(100).lose(0).end(100)


def two_clocks(root: Path) -> HandMadeRun:
    run = HandMadeRun(root).at(0).release(100, offset_ms=300_000)
    return phase(run, 310, "train").end(100)


EXPECTED: dict[Callable[[Path], HandMadeRun], list[dict[str, float]]] = {
    interrupted: [{"idle": 10 + 5, "train": 10 + 30, "down": 45}],
    killed: [{"idle": 10 + 5, "train": 15 + 30, "down": 40}],
    lost: [{"idle": 10, "train": 30, "down": 60}, {"idle": 100}],
    back: [{"idle": 10 + 5, "train": 30 + 45, "down": 10}],
    never_came: [{"idle": 10, "train": 90}, {"down": 100}],
    lost_at_once: [{"down": 100}],
    two_clocks: [{"idle": 10, "train": 90}],
}


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: str(kind.__name__))
def test_dead_time_is_down_and_the_phases_sum_to_the_duration(
    kind: Callable[[Path], HandMadeRun], tmp_path: Path
) -> None:
    report = build_report(read_run(kind(tmp_path).paths))
    assert [part.phases_s for part in report.replica_details] == EXPECTED[kind]


def test_the_time_after_an_interruption_is_not_busy(tmp_path: Path) -> None:
    (replica,) = build_report(read_run(interrupted(tmp_path).paths)).replica_details
    assert replica.busy_fraction == pytest.approx(40 / 90)


def test_of_phases_in_one_millisecond_the_last_one_lasts(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    began: list[tuple[int, Phase]] = [(10, "search"), (10, "build"), (40, "start"), (40, "train")]
    for t_s, name in began:
        phase(run, t_s, name)
    data = read_run(run.paths)
    report = build_report(data, "running")
    assert report.replica_details[0].phases_s == {"idle": 10, "build": 30}
    assert run_status(data, report, None, T0_MS + 41_000).replicas[0].phase == "train"
    data = read_run(run.end(100).paths)
    assert build_report(data).replica_details[0].phases_s == {"idle": 10, "build": 30, "train": 60}


@pytest.mark.parametrize(
    ("spent", "ranks", "says"),
    [
        (
            {"input_s": 4.0, "exchange_s": 10.0},
            2,
            "Of the training, 10 % waited for images and 25 % was all-reduce, waits for the slowest rank included.",
        ),
        (
            {"input_s": 4.0},
            2,
            "Of the training, 10 % waited for images and its all-reduce was not told from computing.",
        ),
        ({"input_s": 4.0}, 1, "Of the training, 10 % waited for images."),
        ({}, 2, ""),
        ({"servers_s": 1.0}, 2, "Of the training, 2.5 % waited for parameter servers."),
        (
            {"input_s": 4.0, "exchange_s": 10.0, "servers_s": 1.0},
            2,
            "Of the training, 10 % waited for images, 25 % was all-reduce, waits for the slowest rank included and "
            "2.5 % waited for parameter servers.",
        ),
    ],
)
def test_the_page_says_how_much_of_the_training_was_no_computing(
    spent: dict[str, float], ranks: int, says: str, tmp_path: Path
) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1)
    report = build_report(read_run(run.at(20).epoch(1, 1).end_trial(1).end(100).paths))
    (part,) = report.replica_details
    own = part.model_copy(update={"phases_s": {"train": 40.0, "idle": 60.0}, "ranks": ranks, **spent})
    found = waits_in_words(report.model_copy(update={"replica_details": (own,)}))
    assert re.sub(r"(\d+)(\.0+)? %", r"\1 %", found) == says


def headings_and_rows(page: str) -> list[list[str]]:
    """The cells of the page's table of replicas."""
    table = page.partition("<h3>Replicas</h3>")[2].partition("</table>")[0]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[1:]]


def shown_in(data: RunData) -> dict[str, list[list[str]]]:
    """The first columns about replicas on the page, in the terminal's report and in its status."""
    report = build_report(data)
    status = _status_table(run_status(data, report, None, T0_MS + 100_000))
    tables = {"report": _replicas(report), "status": status}
    cells = {
        name: [[str(column.header), *map(str, column.cells)] for column in table.columns]
        for name, table in tables.items()
    }
    page = headings_and_rows(report_page(data, report))
    return {"page": [list(column) for column in zip(*page, strict=True)], **cells}


def after_rate(columns: list[list[str]]) -> list[list[str]]:
    """The columns of waits."""
    names = [column[0] for column in columns]
    place = names.index("rate")
    assert names.index("node") < place
    return [column for column in columns[place + 1 :] if column[0] in WAITS.values()]


def test_waits_stand_next_to_the_rate_of_each_replica_only_if_they_were_measured(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "ranks").at(0).release(100, replicas=3)
    spent: tuple[dict[str, Any], ...] = ({"input_s": 1.0, "exchange_s": 4.0}, {"exchange_s": 12.0}, {})
    for replica, seconds in enumerate(spent):
        phase(run.at(0).start_trial(replica + 1, replica), 10, "train", replica)
        run.at(50).epoch(replica + 1, 1, replica=replica, **seconds)
        phase(run, 50, "evaluate", replica)
    shown = shown_in(read_run(run.end(100).paths))
    waits = [["input", "2.5 %", "-", "-"], ["all-reduce", "10.0 %", "30.0 %", "-"]]
    assert {name: after_rate(columns) for name, columns in shown.items()} == dict.fromkeys(shown, waits)
    nothing = shown_in(read_run(working(tmp_path / "one").end(100).paths))
    assert [after_rate(columns) for columns in nothing.values()] == [[], [], []]


def test_waits_for_parameter_servers_stand_next_to_the_rate(tmp_path: Path) -> None:
    run = whole_training(tmp_path).complete(25)
    report = build_report(read_run(run.paths))
    (part,) = report.replica_details
    assert part.servers_s == 0.5, "of group 0, in two epochs"
    share = percent(0.5 / part.phases_s["train"])
    for columns in shown_in(read_run(run.paths)).values():
        assert ["servers", share] in after_rate(columns)
