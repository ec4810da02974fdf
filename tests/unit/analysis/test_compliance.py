"""Every rule broken in turn on an official run; damaged and foreign results."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from aiperf.config.datasets import IMAGENET
from aiperf.errors import RunDirectoryError
from aiperf.history.files import HistoryWriter
from aiperf.history.records import EpochCompleted, JobIssued, RunEnded, RunResumed, TrialStarted
from aiperf.rules.table import RULES
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import open_run
from analysis.output.artifacts import write_report
from analysis.output.systems import mlperf_system
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.archive import write_archive
from analysis.results.compliance import check_result
from analysis.results.source import read_result
from search_space.resnet import resnet
from testing.hand_made import T0_MS, HandMadeRun

HOUR_S = 3600


@dataclass
class Story:
    """Events of a run that is official unless something is changed."""

    overrides: dict[str, Any] = field(default_factory=dict)
    precision: str = "mixed_bfloat16"
    depth: int = 50
    images: int = IMAGENET.train_images
    correct: int = 38_000
    replicas: int = 1
    trained: bool = True
    reason: Literal["deadline", "interrupted"] = "deadline"
    new_clock: bool = False
    damage: bool = False
    ended: bool = True

    def write(self, root: Path) -> HandMadeRun:
        run = HandMadeRun(root, {"run.dataset": "imagenet", "run.duration": HOUR_S, **self.overrides})
        run.architecture = resnet(self.depth, 224, 1000)
        ArchitectureStore(run.paths).save(run.architecture)
        run.at(0).release(HOUR_S, self.replicas)
        if self.new_clock:
            run.primary.append(RunResumed(new_clock=True))
            run.at(1).release_again(HOUR_S)
        if self.trained:
            self._train(run)
        end_ms = T0_MS + (HOUR_S + (1 if self.new_clock else 0)) * 1000
        if self.ended:
            run.at(HOUR_S + 2).primary.append(RunEnded(reason=self.reason, end_ms=end_ms))
        if self.damage:
            file = run.paths.history_file("replica-0000-1")
            file.write_bytes(file.read_bytes().replace(b"38000", b"49000"))
        return run

    def _train(self, run: HandMadeRun) -> None:
        run.at(2).primary.append(JobIssued(trial=1, replica=0, round=1, seed=1))
        run.replicas[0].append(
            TrialStarted(trial=1, replica=0, round=1, architecture=run.architecture.hash, parent=None,
                         hyperparameters={}, epochs=15, precision=self.precision)
        )  # fmt: skip
        body = EpochCompleted(trial=1, epoch=1, images_trained=self.images, images_evaluated=50_000,
                              correct=self.correct, loss=1.0, validation_loss=1.0, learning_rate=0.1)  # fmt: skip
        run.at(1000).replicas[0].append(body)


BROKEN: dict[str, Story] = {
    "arrangement": Story(replicas=0, trained=False),
    "records": Story(damage=True),
    "completion": Story(reason="interrupted"),
    "clock": Story(new_clock=True),
    "work": Story(trained=False),
    "dataset": Story({"run.dataset": "digits"}),
    "epochs": Story(images=1_280_000),
    "trainer": Story({"training.trainer": "simulated"}),
    "initial architecture": Story(depth=101),
    "NAS": Story({"search.strategy": "random"}),
    "HPO": Story({"search.hpo": "none"}),
    "HPO points": Story({"search.hpo_points": 1}),
    "search space": Story(),
    "growth": Story({"search.max_growth": 8.0}),
    "memory limit": Story({"replica.accelerator_memory_gib": 640.0}),
    "planned epochs": Story({"training.max_epochs": 59}),
    "seed": Story({"run.seed": 7}),
    "telemetry": Story({"telemetry.interval": 31}),
    "precision": Story(precision="float8"),
    "input": Story({"training.input": "synthetic"}),
    "duration": Story({"run.duration": HOUR_S - 1}),
    "error": Story(correct=34_999),
}


def test_a_run_by_the_rules_is_official(tmp_path: Path) -> None:
    Story().write(tmp_path)
    compliance = check_result(tmp_path)
    assert [rule.rule for rule in compliance.report.rules if not rule.passed] == []
    assert (compliance.report.verdict, compliance.valid, compliance.recomputed) == ("official", True, True)


def test_there_is_a_run_for_every_rule() -> None:
    assert set(BROKEN) == {rule.name for rule in RULES}


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_that_is_broken_is_named_with_what_was_found(rule: str, tmp_path: Path) -> None:
    story = BROKEN[rule]
    if rule == "search space":
        own = tmp_path / "space.json"
        own.write_text(json.dumps({"batch_size": {"_type": "choice", "_value": [448]}}))
        story = Story({"search.space": str(own)})
    story.write(tmp_path / "run")
    report = check_result(tmp_path / "run").report
    broken = {item.rule: item for item in report.violations}
    none = {"error", "initial architecture"}
    allowed = {"arrangement": {"work", *none}, "work": none, "records": {"work", *none}}.get(rule, set())
    assert rule in broken
    assert set(broken) - {rule} <= allowed
    assert broken[rule].found and broken[rule].required
    assert report.verdict != "official"


def test_a_space_that_was_laid_into_the_run_directory_is_found(tmp_path: Path) -> None:
    run = Story().write(tmp_path)
    run.paths.space.write_text(json.dumps({"kernel_size": {"_type": "choice", "_value": [7]}}))
    (broken,) = check_result(tmp_path).report.violations
    assert (broken.rule, broken.found) == ("search space", "a space in the run directory")


def train(run: HandMadeRun, trial: int, parent: str | None) -> None:
    run.replicas[0].append(
        TrialStarted(trial=trial, replica=0, round=trial, architecture=run.architecture.hash, parent=parent,
                     hyperparameters={}, epochs=15, precision="mixed_bfloat16")
    )  # fmt: skip
    body = EpochCompleted(trial=trial, epoch=1, images_trained=IMAGENET.train_images, images_evaluated=50_000,
                          correct=38_000, loss=1.0, validation_loss=1.0, learning_rate=0.1)  # fmt: skip
    run.at(1000 * trial).replicas[0].append(body)


@pytest.mark.parametrize(
    ("parent", "verdict"), [("0" * 16, "unofficial"), (None, "official")], ids=["a morph of it", "it is trained again"]
)
def test_a_first_trial_that_fails_does_not_stand_for_the_initial_architecture(
    parent: str | None, verdict: str, tmp_path: Path
) -> None:
    run = Story(trained=False, ended=False).write(tmp_path)
    run.at(1).start_trial(1).at(5).fail_trial(1)
    train(run, 2, parent)
    run.at(HOUR_S).primary.append(RunEnded(reason="deadline", end_ms=T0_MS + HOUR_S * 1000))
    report = check_result(tmp_path).report
    broken = {item.rule: item.found for item in report.violations}
    assert report.verdict == verdict
    assert broken == ({} if verdict == "official" else {"initial architecture": "resnet50, never trained"})


def test_a_minute_that_run_json_calls_an_hour_is_not_official(tmp_path: Path) -> None:
    run = Story().write(tmp_path)
    run.primary = HistoryWriter(run.paths, "primary", run.clock)
    run.at(HOUR_S + 3).primary.append(RunEnded(reason="deadline", end_ms=T0_MS + 60_000))
    (broken,) = (item for item in check_result(tmp_path).report.violations if item.rule == "duration")
    assert broken.found == "3600 s configured, 60 s measured"


def reported(root: Path, story: Story) -> Path:
    run = story.write(root)
    data = read_run(run.paths)
    write_report(run.paths.report, data, build_report(data))
    return root


def test_a_report_that_was_edited_is_found(tmp_path: Path) -> None:
    root = reported(tmp_path / "run", Story())
    assert check_result(root).differences == ()
    file = open_run(root).report_json
    document = json.loads(file.read_text())
    document["score_ops"] *= 2
    file.write_text(json.dumps(document))
    compliance = check_result(root)
    assert not compliance.valid
    assert compliance.differences[0].startswith("report.json: score_ops is ")


def pack(root: Path, target: Path) -> Path:
    write_archive(open_run(root), target, mlperf_system(build_report(read_run(open_run(root)))))
    return target


def test_an_archive_gives_the_same_numbers_elsewhere(tmp_path: Path) -> None:
    root = reported(tmp_path / "run", Story())
    archive = pack(root, tmp_path / "run.tar.gz")
    again = pack(root, tmp_path / "again" / "run.tar.gz")
    assert archive.read_bytes() == again.read_bytes(), "the same run, the same bytes"
    here = read_result(root).report
    shutil.rmtree(root)
    there = check_result(archive)
    assert there.valid
    assert there.report == here


def repack(archive: Path, change: Callable[[Path], object], folder: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    root = next(folder.iterdir())
    change(root)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(root, root.name)


CHANGES: dict[str, Callable[[Path], object]] = {
    "is not what SHA256SUMS says": lambda root: (root / "history" / "primary-1.jsonl").write_text("{}"),
    "is missing": lambda root: (root / "system.json").unlink(),
    "is not in SHA256SUMS": lambda root: (root / "history" / "replica-0009-1.jsonl").write_text(""),
    "it has no SHA256SUMS": lambda root: (root / "SHA256SUMS").unlink(),
}


@pytest.mark.parametrize("message", CHANGES)
def test_an_archive_that_was_changed_is_refused(message: str, tmp_path: Path) -> None:
    run = Story().write(tmp_path / "run")
    run.paths.system.write_text("{}")
    archive = pack(tmp_path / "run", tmp_path / "run.tar.gz")
    repack(archive, CHANGES[message], tmp_path / "unpacked")
    with pytest.raises(RunDirectoryError, match=message):
        check_result(archive)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a run directory, archive or report.json"),
        (b'{"score_ops": 1', "is not a run directory, archive or report.json"),
        (b"[" * 100_000, "is not a run directory, archive or report.json"),
        (b'{"loss": [1, 2]}', "not a report of aiperf"),
        (b'{"rules_version": "aiperf-0"}', "its rules are 'aiperf-0'"),
        (b'{"rules_version": "aiperf-1"}', "not a report of this version"),
        (b"\x1f\x8bnot really gzip", "cannot be unpacked"),
    ],
)
def test_damaged_and_foreign_input_gives_a_clear_message(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "what.json"
    file.write_bytes(content)
    with pytest.raises(RunDirectoryError, match=message):
        check_result(file)


def test_a_directory_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        check_result(tmp_path)
