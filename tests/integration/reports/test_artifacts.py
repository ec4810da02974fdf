"""Whole reports of hand-made runs of every kind, and two other ways to the same numbers."""

import json
import random
from collections.abc import Callable
from math import log
from pathlib import Path

import pandas as pd
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from aiperf.cli.units import si
from aiperf.network.operations import count
from aiperf.records.bodies import PhaseBegan
from aiperf.run_directory.paths import open_run
from aiperf.wire.messages import Phase
from analysis.output.artifacts import write_numbers, write_report
from analysis.output.tables import print_report
from analysis.reading.history import ProgressThinning, read_writer
from analysis.reading.run_data import RunData, read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from tests.support.hand_made import T0_MS, HandMadeRun


def written(run: HandMadeRun) -> tuple[RunData, Report, Path]:
    data = read_run(open_run(run.paths.root))
    report = build_report(data)
    return data, report, write_report(run.paths.report, data, report)


ONE_EPOCH = {"training.max_epochs": 4}
"""In the first round."""


def one_trial(root: Path) -> HandMadeRun:
    run = HandMadeRun(root, ONE_EPOCH).at(0).release(100).at(1).start_trial(1)
    began: list[tuple[int, Phase]] = [(1, "search"), (2, "start"), (5, "build"), (9, "train"), (50, "evaluate")]
    for t_s, phase in began:
        run.at(t_s).replicas[0].append(PhaseBegan(replica=0, trial=1, phase=phase))
    return run.at(60).epoch(1, 1, correct=324).end_trial(1).end(100)


def perfect(root: Path) -> HandMadeRun:
    return HandMadeRun(root).at(0).release(100).at(1).start_trial(1).at(60).epoch(1, 1, correct=360).end(100)


def empty(root: Path) -> HandMadeRun:
    return HandMadeRun(root).at(0).release(100).end(100)


def never_started(root: Path) -> HandMadeRun:
    return HandMadeRun(root)


def running(root: Path) -> HandMadeRun:
    return HandMadeRun(root).at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1)


def shifted(root: Path) -> HandMadeRun:
    run = HandMadeRun(root, ONE_EPOCH).at(0).release(100, offset_ms=300_000)
    return run.at(301).start_trial(1).at(360).epoch(1, 1, correct=324).end_trial(1).end(100)


def resumed(root: Path) -> HandMadeRun:
    run = HandMadeRun(root).at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1).progress(1, 2, 700)
    return run.at(40).resume().rejoin().at(50).start_trial(2).at(80).epoch(2, 1).end(100)


def failing(root: Path) -> HandMadeRun:
    run = HandMadeRun(root).at(0).release(100, replicas=3).at(1).start_trial(1).start_trial(2, replica=1)
    run.at(20).epoch(1, 1).at(30).progress(1, 2, 400).at(35).fail_trial(1)
    return run.at(36).lose(1).at(37).lose(2).end(100)


def thousand_trials(root: Path) -> HandMadeRun:
    run, rng = HandMadeRun(root, {"search.hpo": "none"}).at(0).release(4000, replicas=4), random.Random(3)
    for number in range(1, 1001):
        replica = number % 4
        run.at(number * 3.5).start_trial(number, replica).at(number * 3.5 + 1).progress(number, 1, 700, replica)
        run.at(number * 3.5 + 2).epoch(number, 1, correct=rng.randint(30, 350), replica=replica)
        run.fail_trial(number, replica)
    return run.end(4000)


KINDS: list[Callable[[Path], HandMadeRun]] = [
    one_trial,
    perfect,
    empty,
    never_started,
    running,
    shifted,
    resumed,
    failing,
    thousand_trials,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_every_kind_of_run_has_a_whole_report_that_pandas_confirms(
    kind: Callable[[Path], HandMadeRun], tmp_path: Path
) -> None:
    data, report, page = written(kind(tmp_path))
    text = page.read_text()
    for part in (report.final_line, f'class="badge {report.verdict}"', 'id="reasons"', 'id="time"'):
        assert part in text
    assert Report.model_validate_json(open_run(tmp_path).report_json.read_text()) == report
    folder = page.parent
    assert len(pd.read_csv(folder / "tables" / "rules.csv")) == len(report.rules)
    if data.start_ms is not None and kind is not resumed:
        score, error = recomputed(tmp_path, report.duration_s)
        assert report.error == pytest.approx(error, rel=1e-12)
        if report.status == "FAILED":
            assert (report.score_ops, report.regulated_score_ops) == (None, None)
            report = build_report(data, "running" if data.ended == "unfinished" else None)
        if report.score_ops is not None:
            assert report.score_ops == pytest.approx(score, rel=1e-12)
            assert report.regulated_score_ops == pytest.approx(-log(error) * score, rel=1e-12)
        assert (report.score_ops is None) == (kind in (empty, never_started))
    if data.start_ms is not None:
        assert (folder / "figures" / "phases.svg").stat().st_size > 1000
        assert (folder / "figures" / "phases.png").read_bytes()[1:4] == b"PNG"


def recomputed(root: Path, duration_s: float) -> tuple[float, float]:
    """Score and error from the raw lines alone, without the project's own code."""
    lines = [json.loads(line) for file in (root / "history").glob("*.jsonl") for line in file.read_text().splitlines()]
    frame = pd.DataFrame([{**line["data"], "file": line["writer"], "at": pd.Timestamp(line["time"])} for line in lines])
    ready = frame[frame.type == "replica_ready"]
    offsets = dict(zip(ready.writer, ready.clock_offset_ms, strict=True)) if len(ready) else {}
    frame["at"] -= pd.to_timedelta(frame.file.map(offsets).fillna(0), unit="ms")
    start = frame[frame.type == "run_released"]["at"].iloc[0]
    end = start + pd.Timedelta(seconds=duration_s)
    died = {row.trial: row["at"] for _, row in frame[frame.type == "trial_failed"].iterrows()}
    started = frame[frame.type == "trial_started"] if "trial" in frame else frame[:0]
    for _, lost in frame[frame.type == "replica_lost"].iterrows():
        for _, row in started[started.replica == lost.replica].iterrows():
            died.setdefault(row.trial, lost["at"])
    within = frame[(frame["at"] <= end) & frame.type.isin(["epoch", "progress"])]
    epochs = within[within.type == "epoch"]
    operations = 0.0
    best = 1.0
    if len(within):
        cost = count(HandMadeRun.architecture_of(root)).operations
        for trial, own in within.groupby("trial"):
            done = own[own.type == "epoch"]
            operations += (done.images_trained * cost.total + done.images_evaluated * cost.forward).sum()
            later = own[(own.type == "progress") & (own.epoch > (done.epoch.max() if len(done) else 0))]
            if trial not in died and len(later):
                operations += float(later.images_trained.max()) * cost.total
    if len(epochs):
        best = max(1 - (epochs.correct / epochs.images_evaluated).max(), 1 / (2 * epochs.images_evaluated.max()))
    return operations / duration_s, float(best)


def test_a_thinned_history_gives_the_same_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, rng = HandMadeRun(tmp_path).at(0).release(7200), random.Random(5)
    run.at(1).start_trial(1)
    t_s, epoch, images = 1.0, 1, 0
    while t_s < 7300:
        t_s += rng.uniform(0.5, 9)
        images += rng.randint(1, 40)
        if images >= 1437:
            run.at(t_s).epoch(1, epoch, correct=rng.randint(30, 350))
            epoch, images = epoch + 1, 0
        else:
            run.at(t_s).progress(1, epoch, images)
    run.end(7200)
    file = run.paths.history_file("replica-0000-1")
    lines = len(file.read_bytes().splitlines())
    assert len(read_writer(file, ProgressThinning(T0_MS, T0_MS + 7_200_000)).columns.progress) < lines / 2
    thinned = build_report(read_run(run.paths))
    monkeypatch.setattr("analysis.reading.history.LONG_RUN_MS", 10**12)
    whole = build_report(read_run(run.paths))
    assert thinned.timeline == whole.timeline
    assert len(whole.timeline) == 20
    assert thinned == whole


def test_damage_in_a_long_history_is_named_by_its_line(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(7200).at(1).start_trial(1)
    for number in range(50):
        run.at(2 + number).progress(1, 1, 10 * number)
    run.end(7200)
    file = run.paths.history_file("replica-0000-1")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[30] = lines[30].replace(b'"images_trained":290', b'"images_trained":999')
    file.write_bytes(b"".join(lines))
    found = [(damage.file, damage.line, damage.kind) for damage in read_run(run.paths).damages]
    file_name = "history/replica-0000-1.jsonl"
    assert found == [(file_name, 31, "record"), (file_name, 32, "chain")]


def test_other_tools_can_read_a_run(tmp_path: Path) -> None:
    _, report, page = written(one_trial(tmp_path))
    metrics = {
        family.name: family for family in text_string_to_metric_families((page.parent / "metrics.txt").read_text())
    }
    assert metrics["aiperf_score_ops"].samples[0].value == report.score_ops
    assert metrics["aiperf_score_ops"].samples[0].labels == {"run": "aiperf", "verdict": "unofficial"}
    phases = {sample.labels["phase"]: sample.value for sample in metrics["aiperf_phase_seconds"].samples}
    assert phases == report.phases_s
    lines = (page.parent / "mllog.txt").read_text().splitlines()
    assert all(line.startswith(":::MLLOG {") for line in lines)
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    accuracy = next(event for event in events if event["key"] == "eval_accuracy")
    assert (accuracy["value"], accuracy["metadata"]) == (0.9, {"epoch_num": 1, "trial": 1})
    assert [event["time_ms"] for event in events] == sorted(event["time_ms"] for event in events)
    assert next(event for event in events if event["key"] == "run_stop")["metadata"] == {"status": "success"}


def test_peak_and_sustained_rates_are_on_the_page_in_the_terminal_and_in_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, report, page = written(one_trial(tmp_path))
    row = pd.read_csv(page.parent / "tables" / "run.csv").iloc[0]
    assert (row.peak_ops, row.sustained_ops, row.score_ops) == (
        report.peak_ops,
        report.sustained_ops,
        report.score_ops,
    )
    print_report(report, None)
    shown = capsys.readouterr().out
    for name, value in (("peak", report.peak_ops), ("sustained", report.sustained_ops)):
        assert f"{name}" in shown and si(value, "OPS") in shown
        assert f"<b>{si(value, 'OPS')}</b><span>{name}</span>" in page.read_text()


def test_names_and_reasons_are_shown_as_text_and_never_run(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.name": "<script>alert(1)</script>"}).at(0).release(10).at(1).start_trial(1)
    _, _, page = written(run.at(2).fail_trial(1).end(10))
    assert "<script>alert" not in page.read_text()


def test_numbers_alone_are_those_of_the_whole_report_and_leave_no_older_picture(tmp_path: Path) -> None:
    run = one_trial(tmp_path)
    data, report, page = written(run)
    whole = {file.relative_to(page.parent): file.read_bytes() for file in page.parent.rglob("*") if file.is_file()}
    for name in ("report.json", "tables/trials.csv"):
        (page.parent / name).unlink()
    (page.parent / "notes.txt").write_text("an operator's own")
    write_numbers(page.parent, data, report)
    left = {file.relative_to(page.parent): file.read_bytes() for file in page.parent.rglob("*") if file.is_file()}
    assert left.pop(Path("notes.txt")) == b"an operator's own"
    assert left == {name: data for name, data in whole.items() if name.suffix not in (".html", ".svg", ".png")}


def test_numbers_alone_remove_no_file_of_a_folder_that_somebody_chose(tmp_path: Path) -> None:
    run = one_trial(tmp_path / "run")
    data, report, _ = written(run)
    theirs = tmp_path / "docs"
    (theirs / "figures").mkdir(parents=True)
    kept = [theirs / "report.html", theirs / "figures" / "logo.svg", theirs / "figures" / "photo.png"]
    for file in kept:
        file.write_text("somebody's own")
    write_numbers(theirs, data, report)
    assert (theirs / "report.json").exists()
    assert {file.read_text() for file in kept} == {"somebody's own"}
