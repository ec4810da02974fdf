"""Submissions made from those of others: no honest row changes, and nothing is merged unseen."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace as replaced
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aiperf.clock import format_utc
from aiperf.records.bodies import EpochCompleted, RunEnded
from aiperf.records.record import Record
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from analysis.results.ranking import ORDERS, Order, Row, rank
from analysis.results.science import SCIENCE_ORDERS, ScienceOrder, WorkloadRow, look_at_workloads, rank_workloads
from analysis.results.source import RunResult, numbers_of, read_result
from tests.forgeries.claims import OF_FIRST, OF_SECOND, PRIMARY, slow_clock
from tests.forgeries.table import configure, invented, same
from tests.support.forging import rewrite
from tests.support.fuzz import examples, fuzzing
from tests.unit.analysis.science.runs import officially, one_model, run_of_four

DAY_MS = 86_400_000


def later(paths: RunPaths, by_ms: int) -> None:
    """Everything at another time, told by all clocks and samples."""

    def change(record: Record) -> Record:
        body = record.body
        if isinstance(body, RunEnded):
            body = replace(body, end_ms=body.end_ms + by_ms)
        return replace(record, time_ms=record.time_ms + by_ms, monotonic_ms=record.monotonic_ms + by_ms, body=body)

    for file in paths.telemetry_files():
        head, *lines = file.read_text().splitlines()
        samples = [json.loads(line) for line in lines]
        for sample in samples:
            moment = datetime.fromisoformat(sample["time"]) + timedelta(milliseconds=by_ms)
            sample["time"] = format_utc(round(moment.timestamp() * 1000))
        file.write_text("\n".join([head, *map(json.dumps, samples)]) + "\n")
    rewrite(paths, change)


@pytest.fixture(scope="module")
def two(bases: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two honest runs of two systems: the second a day later, with trainings of its own."""
    root = shutil.copytree(bases["official"], tmp_path_factory.mktemp("competitors") / "south")
    paths = RunPaths(root)
    configure(paths, run__name="south")
    for file in paths.root.glob("evidence/*"):
        file.write_bytes(b"")

    def change(record: Record) -> Record:
        body = record.body
        return replace(record, body=invented(paths, body)) if isinstance(body, EpochCompleted) else record

    rewrite(paths, change)
    later(paths, DAY_MS)
    return bases["official"], root


@pytest.fixture(scope="module")
def alone(two: tuple[Path, Path]) -> list[RunResult]:
    """Both as they are read."""
    results = [read_result(root) for root in two]
    assert [result.status for result in results] == ["official"] * 2
    first, second = (numbers_of(result.evidence) for result in results)
    assert not np.isin(first, second).any()
    return results


def cut(paths: RunPaths, other: Path) -> None:
    """A trial cut off, the release kept."""

    def change(record: Record) -> Record | None:
        return None if getattr(record.body, "trial", None) == OF_SECOND else record

    rewrite(paths, change)
    paths.evidence(OF_SECOND).unlink()


def named(paths: RunPaths, other: Path) -> None:
    """The name of the competitor."""
    configure(paths, run__name=json.loads((other / "run.json").read_text())["config"]["run"]["name"])
    rewrite(paths, same)


def alike(paths: RunPaths, other: Path) -> None:
    """The own name with a Cyrillic letter."""
    name = json.loads(paths.run.read_text())["config"]["run"]["name"]
    configure(paths, run__name=name.replace("o", "\u043e").replace("a", "\u0430"))
    rewrite(paths, same)


def moments_later(paths: RunPaths, other: Path) -> None:
    """A millisecond later."""
    later(paths, 1)


def released(paths: RunPaths, other: Path) -> None:
    """The competitor's release in an unfinished line of another primary."""
    lines = (other / "history" / f"{PRIMARY}.jsonl").read_bytes().splitlines()
    line = next(line for line in lines if b'"type":"run_released"' in line)
    paths.history_file("primary-2").write_bytes(line)


Step = Callable[[RunPaths, Path], None]

HOSTILE: list[tuple[Step, ...]] = [
    (),
    (cut,),
    (named,),
    (alike,),
    (moments_later,),
    (released,),
    (named, moments_later),
    (cut, named),
    (cut, alike, moments_later, released),
]


def rows_of(results: list[RunResult], honest: list[RunResult], order: Order = "score") -> list[Row]:
    """The rows of the honest ones. An equal copy that is given first may stand for one of them."""
    ranking = rank(results, order)
    stands, rows = dict(ranking.same), {row.origin: replaced(row, contested="") for row in ranking.rows}
    origins = [str(result.origin) for result in honest]
    return [replaced(rows[stands.get(origin, origin)], origin=origin) for origin in origins]


@pytest.mark.parametrize("steps", HOSTILE, ids=lambda steps: " ".join(step.__name__ for step in steps) or "copied")
@pytest.mark.parametrize("source", [0, 1])
def test_a_hostile_submission_leaves_honest_rows_as_they_are(
    source: int, steps: tuple[Step, ...], two: tuple[Path, Path], alone: list[RunResult], tmp_path: Path
) -> None:
    root = shutil.copytree(two[source], tmp_path / "hostile")
    for step in steps:
        step(RunPaths(root), two[1 - source])
    hostile = read_result(root)
    expected = rows_of(alone, alone)
    assert rows_of([*alone, hostile], alone) == expected
    ranking = rank([*alone, hostile], "score")
    if not steps:
        assert ranking.same == ((str(root), str(two[source])),)
    elif hostile.status == "official":
        assert any(str(root) in line and str(two[source]) in line for line in ranking.conflicts)
        assert max(row.rank or 0 for row in ranking.rows) <= max(row.rank or 0 for row in expected) + 1


def cut_at(trial: int) -> Step:
    """A trial cut off."""

    def step(paths: RunPaths, other: Path) -> None:
        rewrite(paths, lambda record: None if getattr(record.body, "trial", None) == trial else record)
        paths.evidence(trial).unlink(missing_ok=True)  # cut off before

    return step


def moved_by(by_ms: int) -> Step:
    """Everything at another time."""
    return lambda paths, other: later(paths, by_ms)


def with_rows_of(trial: int) -> Step:
    """The rows of a trial of the competitor for one's own, with all that names them."""

    def step(paths: RunPaths, other: Path) -> None:
        paths.evidence(trial).write_bytes(RunPaths(other).evidence(trial).read_bytes())
        theirs = read_run(RunPaths(other)).ledger.trials[trial].epochs

        def change(record: Record) -> Record:
            body = record.body
            if not isinstance(body, EpochCompleted) or body.trial != trial or body.epoch not in theirs:
                return record
            source = theirs[body.epoch].body
            return replace(record, body=replace(body, evidence=source.evidence, loss=source.loss))

        rewrite(paths, change)

    return step


drawn = settings(
    derandomize=not fuzzing(),
    database=None,
    deadline=None,
    max_examples=examples(12),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)

STEPS = st.one_of(
    st.sampled_from([OF_FIRST, OF_SECOND]).map(cut_at),
    st.sampled_from([named, alike, released]),
    st.integers(-DAY_MS, DAY_MS).map(moved_by),
    st.integers(1, 6).map(with_rows_of),
)


def test_no_submission_made_from_others_changes_an_honest_row(two: tuple[Path, Path], alone: list[RunResult]) -> None:
    """In whatever order they are given, and whether or not the competitor has submitted."""

    @drawn
    @given(st.lists(STEPS, min_size=1, max_size=3), st.integers(0, 1), st.permutations(range(3)), st.booleans())
    def holds(steps: list[Step], source: int, places: list[int], competitors: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = shutil.copytree(two[source], Path(folder) / two[source].name)
            for step in steps:
                step(RunPaths(root), two[1 - source])
            hostile = read_result(root)
        honest = alone if competitors else [alone[source]]
        submitted = [
            result for result in ([*alone, hostile][place] for place in places) if result is hostile or result in honest
        ]
        for order in ORDERS:
            assert rows_of(submitted, honest, order) == rows_of(honest, honest, order)

    holds()


def faster(result: RunResult, times: float) -> RunResult:
    """A result with all its times to quality divided by a number."""
    parts = [
        part.model_copy(update={"time_to_quality_s": part.time_to_quality_s and part.time_to_quality_s / times})
        for part in result.report.workloads
    ]
    return replaced(result, report=result.report.model_copy(update={"workloads": tuple(parts)}))


def workload_rows(results: list[RunResult], honest: list[RunResult], order: ScienceOrder) -> list[list[WorkloadRow]]:
    """The rows of each of the honest ones, as `rows_of`."""
    stands, rows = dict(look_at_workloads(results)[0]), rank_workloads(results, order)
    origins = [str(result.origin) for result in honest]
    return [
        [replaced(row, origin=own, contested="") for row in rows if row.origin == stands.get(own, own)]
        for own in origins
    ]


OF_SCIENCE = st.one_of(
    st.integers(1, 5).map(cut_at), st.sampled_from([named, alike]), st.integers(-DAY_MS, DAY_MS).map(moved_by)
)


def test_no_scientific_submission_made_from_others_changes_an_honest_row(tmp_path: Path) -> None:
    """With signatures, whatever it claims. Without any, its claims may stand above others."""
    runs = (run_of_four(tmp_path / "north", **{"run.name": "north"}), one_model(tmp_path / "south"))
    two = [run.paths.root for run in runs]
    alone = officially([read_result(root) for root in two])
    signed = [replaced(result, signer=f"owner {number}") for number, result in enumerate(alone)]

    @drawn
    @given(
        st.lists(OF_SCIENCE, max_size=3),
        st.sampled_from([1.0, 2.0, 1000.0]),
        st.integers(0, 1),
        st.permutations(range(3)),
        st.booleans(),
    )
    def holds(steps: list[Step], times: float, source: int, places: list[int], competitors: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = shutil.copytree(two[source], Path(folder) / two[source].name)
            for step in steps:
                step(RunPaths(root), two[1 - source])
            read = read_result(root)
        report = read.report.model_copy(update={"verdict": "official"})
        hostile = faster(replaced(read, report=report, evidence=alone[source].evidence), times)
        for own in (signed, alone):
            honest = own if competitors else [own[source]]
            every = [*own, hostile]
            submitted = [every[place] for place in places if every[place] is hostile or every[place] in honest]
            for order in SCIENCE_ORDERS:
                expected, found = (workload_rows(given, honest, order) for given in (honest, submitted))
                if own is alone:  # faster ones may be above others
                    expected, found = (
                        [[replaced(row, rank=None) for row in rows] for rows in each] for each in (expected, found)
                    )
                assert found == expected

    holds()


@pytest.mark.parametrize("source", [0, 1])
def test_a_faster_copy_of_a_signed_run_has_no_rank(
    source: int, two: tuple[Path, Path], alone: list[RunResult], tmp_path: Path
) -> None:
    """All times divided by two, all remade. Without signatures it is named, and may be above."""
    root = shutil.copytree(two[source], tmp_path / "hostile")
    later(RunPaths(root), -DAY_MS * source)
    slow_clock(RunPaths(root))
    hostile = read_result(root)
    assert hostile.status == "official", hostile.damages[:3]
    signed = [replaced(result, signer=f"owner {number}") for number, result in enumerate(alone)]
    assert rows_of([*signed, hostile], signed) == rows_of(signed, signed)
    assert {row.rank for row in rank([*signed, hostile], "score").rows if row.origin == str(root)} == {None}
    (line,) = rank([*alone, hostile], "score").conflicts
    assert str(root) in line and str(two[source]) in line
    for own, before in zip(rows_of([*alone, hostile], alone), rows_of(alone, alone), strict=True):
        assert replaced(own, rank=before.rank) == before
        assert (own.rank or 0) - (before.rank or 0) in (0, 1)


def test_an_unfinished_line_of_a_primary_is_damage_in_a_run_that_has_ended(
    bases: dict[str, Path], tmp_path: Path
) -> None:
    root = shutil.copytree(bases["official"], tmp_path / "run")
    released(RunPaths(root), bases["official"])
    (damage,) = read_run(RunPaths(root)).damages
    assert (damage.file, damage.kind) == ("history/primary-2.jsonl", "record")


def test_a_replicas_unfinished_line_is_none(bases: dict[str, Path], tmp_path: Path) -> None:
    """One that was killed while it wrote leaves such a line."""
    root = shutil.copytree(bases["official"], tmp_path / "run")
    file: Any = RunPaths(root).history_file("replica-0001-1")
    file.write_bytes(file.read_bytes() + b'{"sequence":')
    assert read_run(RunPaths(root)).damages == ()
