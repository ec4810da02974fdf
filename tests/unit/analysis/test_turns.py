"""Work out of turn: overlapping trials, jobs before the release, open epochs of ended trials; and
values that no reader may stumble over.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aiperf.records.bodies import (
    EpochCompleted,
    ProgressMade,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialBuilt,
    TrialEnded,
    TrialStarted,
)
from aiperf.records.record import Record
from aiperf.source_code import source_hash
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.physics import findings
from tests.support.forging import Change, rewrite
from tests.support.hand_made import HandMadeRun


def honest(root: Path) -> HandMadeRun:
    """A trial that completes, a restart of its replica while idle, and a second trial."""
    run = HandMadeRun(root).at(0).release(600)
    run.at(1).start_trial(1).at(50).epoch(1, 1).at(100).epoch(1, 2).end_trial(1)
    run.at(110).lose(0).at(120).rejoin().start_trial(2).at(200).epoch(2, 1)
    return run.end(600)


def found(run: HandMadeRun) -> list[str]:
    return [damage.found for damage in read_run(run.paths).damages]


def test_a_replica_that_starts_again_has_no_damage(tmp_path: Path) -> None:
    assert found(honest(tmp_path)) == []


def test_two_files_of_a_replica_do_not_train_at_the_same_time(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600).at(1).start_trial(1)
    first = run.replicas[0]
    run.at(10).rejoin().start_trial(2).at(50).epoch(2, 1)
    run.replicas[0] = first
    run.at(51).epoch(1, 1).end(600)
    assert "job 2 is issued while trial 1 of the replica is in progress" in found(run)


def test_no_job_is_issued_before_the_release(tmp_path: Path) -> None:
    run, release = honest(tmp_path), list[Record]()

    def late(record: Record) -> list[Record]:
        if isinstance(record.body, RunReleased):
            release.append(record)
            return []
        if isinstance(record.body, ReplicaReady) and release:
            return [replace(release.pop(), time_ms=record.time_ms, monotonic_ms=record.monotonic_ms), record]
        return [record]

    rewrite(run.paths, late)
    assert "job 1 is issued" in found(run)


def test_an_epoch_is_not_witnessed_after_the_end_of_its_trial(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600).at(1).start_trial(1).at(50)
    run._close(0, "lost")
    assert "epoch 1 of trial 1 is witnessed" in found(run.epoch(1, 1).end(600))


@pytest.mark.parametrize(("epoch", "says"), [(2, "which then ended by itself"), (3, "progress in epoch 3")])
def test_a_trial_that_ended_by_itself_has_no_open_epoch(epoch: int, says: str, tmp_path: Path) -> None:
    def with_open_epoch(record: Record) -> list[Record]:
        if isinstance(record.body, EpochCompleted) and record.body.trial == 1 and record.body.epoch == epoch:
            return []
        if not isinstance(record.body, TrialEnded):
            return [record]
        body = ProgressMade(trial=1, epoch=epoch, images_trained=1437, images_evaluated=360)
        return [replace(record, body=body), record]

    run = honest(tmp_path)
    rewrite(run.paths, with_open_epoch)
    assert any(says in text for text in found(run))


@pytest.mark.parametrize("stopped", [True, False])
def test_a_stop_does_not_save_the_open_epoch_of_a_replica_that_is_lost(stopped: bool, tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600).at(1).start_trial(1).at(50).epoch(1, 1).at(90).progress(1, 2, 1400)
    if stopped:
        run.at(95).replicas[0].append(TrialEnded(trial=1, reason="stopped"))
    run.at(100).lose(0).at(110).end(600)
    assert build_report(read_run(run.paths)).images_trained == 1437


def test_a_trainer_does_not_compute_in_less_than_its_precision(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600).at(1).start_trial(1)
    run.replicas[0].append(
        TrialBuilt(
            trial=1,
            architecture=run.architecture.hash,
            compute={"float8_e4m3": 54},
            devices=("cpu",),
            framework="f",
            source_hash=source_hash(),
            environment={},
        )
    )
    assert found(run.end(600)) == ["trial 1 computed in float8_e4m3"]


def test_ranks_have_a_device_each(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(600).at(1).start_trial(1)
    run.replicas[0].append(
        TrialBuilt(
            trial=1,
            architecture=run.architecture.hash,
            compute={},
            devices=("NVIDIA H200",) * 8,
            framework="f",
            source_hash=source_hash(),
            environment={},
        )
    )
    run.at(100).epoch(1, 1).support(600).end(600)
    assert [item.found for item in findings(read_run(run.paths)) if item.kind == "devices"] == [
        "8 ranks on 1 accelerators"
    ]


def changed(kind: type, **values: Any) -> Change:
    def change(record: Record) -> Record:
        return replace(record, body=replace(record.body, **values)) if isinstance(record.body, kind) else record

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed(TrialStarted, architecture="a\0b"),
        changed(TrialStarted, architecture="/etc"),
        changed(TrialStarted, parent="\0"),
        changed(TrialStarted, hyperparameters={"learning_rate": "x"}),
        changed(RunEnded, end_ms=10**17),
        changed(RunReleased, duration_ms=10**17),
        changed(ReplicaReady, clock_offset_ms=10**400),
        changed(EpochCompleted, epoch=10**400),
        changed(EpochCompleted, images_trained=10**400),
    ],
)
def test_values_that_cannot_be_are_damages(change: Change, tmp_path: Path) -> None:
    run = honest(tmp_path)
    rewrite(run.paths, change)
    assert build_report(read_run(run.paths)).verdict == "invalid"


def _many_accelerators(run: HandMadeRun) -> None:
    nodes = json.loads(run.paths.system.read_text())
    run.paths.system.write_text(json.dumps({name: {**facts, "accelerators": 10**30} for name, facts in nodes.items()}))


def _sample(line: str) -> Callable[[HandMadeRun], None]:
    def add(run: HandMadeRun) -> None:
        with run.paths.telemetry_files()[0].open("a") as stream:
            stream.write(line + "\n")

    return add


@pytest.mark.parametrize(
    "forge",
    [
        _sample("[" * 100_000),
        _sample('{"time": "2023-11-14T22:14:00.000Z", "memory_used_bytes": 1e999, "memory_total_bytes": 1}'),
    ],
)
def test_samples_that_cannot_be_are_left_out(forge: Callable[[HandMadeRun], None], tmp_path: Path) -> None:
    run = honest(tmp_path).support(600)
    forge(run)
    assert build_report(read_run(run.paths)).damages == ()


def test_nodes_that_cannot_be_are_damage(tmp_path: Path) -> None:
    run = honest(tmp_path).support(600)
    _many_accelerators(run)
    assert [damage.split(":")[0] for damage in build_report(read_run(run.paths)).damages] == ["system.json"]
