"""Reports of hand-made runs, with every number worked out by hand from the records."""

import json
from collections.abc import Iterator
from importlib import resources
from math import log
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aiperf.errors import RunDirectoryError
from aiperf.network.operations import count
from aiperf.records.bodies import PhaseBegan, RunEnded, TrialEnded, TrialStarted
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.source_code import git_state, source_hash
from aiperf.wire.messages import Phase
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.model import Report
from search_space.resnet import resnet
from tests.support.hand_made import T0_MS, HandMadeRun

COST = count(resnet(50, 32, 10)).operations
EPOCH = 1437 * COST.total + 360 * COST.forward


def report(run: HandMadeRun) -> Report:
    return build_report(read_run(open_run(run.paths.root)))


def two_epochs(root: Path, end_s: float) -> HandMadeRun:
    run = HandMadeRun(root).at(0).release(end_s).at(1).start_trial(1)
    return run.at(30).epoch(1, 1, correct=180).at(60).epoch(1, 2, correct=324).end(end_s)


def test_score_and_regulated_score_by_hand(tmp_path: Path) -> None:
    result = report(two_epochs(tmp_path, 100))
    assert result.operations_total == 2 * EPOCH
    assert result.score_ops == 2 * EPOCH / 100
    assert result.error == (360 - 324) / 360
    assert result.regulated_score_ops == -log((360 - 324) / 360) * (2 * EPOCH / 100)
    assert (result.images_trained, result.images_evaluated) == (2 * 1437, 2 * 360)
    assert (result.duration_s, result.replicas, result.accelerators, result.ranks) == (100.0, 1, 0, 1)
    assert result.trials[0].best_accuracy == 324 / 360
    assert result.trials[0].operations == 2 * EPOCH


def test_peak_and_sustained_rates_of_two_replicas_by_hand(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2).at(1).start_trial(1).start_trial(2, replica=1)
    for second in range(1, 31):
        # Trial 1 is three times as fast in its second ten seconds; trial 2 begins with them.
        run.at(10 + second).progress(1, 1, 10 * second + 20 * min(max(0, second - 10), 10))
        if second > 10:
            run.progress(2, 1, 5 * (second - 10), replica=1)
    run.at(100)
    for replica in (0, 1):
        run.replicas[replica].append(TrialEnded(trial=1 + replica, reason="stopped"))
        run._close(replica, "stopped")
    result = report(run.end(100))
    # Trials begin at 1 s; records are a second apart, but for the first one of each trial.
    assert result.sustained_ops == pytest.approx((500 + 100) * COST.total / (40 - 1), rel=1e-12)
    best = {"first trial": 300, "second trial, begins slowly": 5 / 20 + 45}
    assert result.peak_ops == pytest.approx(sum(best.values()) / 10 * COST.total, rel=1e-9)
    assert result.score_ops == 600 * COST.total / 100


def test_doubling_the_pause_at_the_end_lowers_the_score_accordingly(tmp_path: Path) -> None:
    short, long = report(two_epochs(tmp_path / "a", 100)), report(two_epochs(tmp_path / "b", 140))
    assert (short.score_ops, long.score_ops) == (short.operations_total / 100, short.operations_total / 140)
    assert long.operations_total == short.operations_total
    assert long.error == short.error


def test_work_after_the_deadline_does_not_count(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(50).at(1).start_trial(1)
    run.at(40).epoch(1, 1).at(49).progress(1, 2, 500).at(51).progress(1, 2, 600).at(55).epoch(1, 2, correct=360)
    result = report(run.end(50))
    assert result.operations_total == EPOCH + 500 * COST.total
    assert result.error == 60 / 360
    assert result.images_trained == 1437 + 500


def test_an_unfinished_epoch_of_a_failed_trial_or_a_lost_replica_does_not_count(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2).at(1).start_trial(1).start_trial(2, replica=1)
    run.at(20).epoch(1, 1).epoch(2, 1, replica=1)
    run.at(30).progress(1, 2, 400).progress(2, 2, 500, replica=1).at(35).fail_trial(1).at(36).lose(1)
    result = report(run.end(100))
    assert result.operations_total == 2 * EPOCH
    failed, lost = result.trials
    assert (failed.state, failed.failure_reason, failed.lost_operations) == ("failed", "crash: gone", 400 * COST.total)
    assert (lost.state, lost.failure_reason, lost.lost_operations) == ("lost", "power cut", 500 * COST.total)
    assert [detail.state for detail in result.replica_details] == ["finished", "lost"]


def test_clocks_that_are_minutes_apart_give_the_same_score(tmp_path: Path) -> None:
    right = report(two_epochs(tmp_path / "right", 100))
    run = HandMadeRun(tmp_path / "wrong").at(0).release(100, offset_ms=300_000)
    run.at(301).start_trial(1).at(330).epoch(1, 1, correct=180).at(360).epoch(1, 2, correct=324)
    wrong = report(run.end(100))
    assert (wrong.score_ops, wrong.error, wrong.timeline) == (right.score_ops, right.error, right.timeline)


def test_a_run_without_any_epoch_fails_and_says_why(tmp_path: Path) -> None:
    result = report(HandMadeRun(tmp_path).at(0).release(10).end(10))
    assert (result.status, result.score_ops, result.regulated_score_ops, result.error) == ("FAILED", None, None, 1.0)
    assert "work" in [violation.rule for violation in result.violations]


def test_a_run_that_was_never_released_and_one_that_never_ended(tmp_path: Path) -> None:
    never = report(HandMadeRun(tmp_path / "a"))
    assert (never.status, never.started, never.duration_s, never.timeline) == ("FAILED", None, 0.0, ())
    unfinished = report(HandMadeRun(tmp_path / "b").at(0).release(100).at(1).start_trial(1).at(30).epoch(1, 1))
    assert (unfinished.ended, unfinished.duration_s, unfinished.status) == ("unfinished", 30.0, "FAILED")
    assert unfinished.trials[0].state == "running"


def test_damaged_records_and_missing_architectures_fail_the_run(tmp_path: Path) -> None:
    run = two_epochs(tmp_path, 100)
    file = run.paths.history_file("replica-0000-1")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:1], lines[1].replace(b'"correct":180', b'"correct":190'), *lines[2:]]))
    result = report(run)
    assert result.status == "FAILED"
    kinds = [(damage.line, damage.kind) for damage in read_run(run.paths).damages]
    assert kinds == [(2, "record"), (2, "witness"), (3, "chain"), (3, "bounds")]
    assert "history/replica-0000-1.jsonl line 2: the checksum does not fit" in result.damages[0]
    run.paths.architecture(run.architecture.hash).unlink()
    assert len(report(run).damages) == 5
    assert (report(run).operations_total, report(run).score_ops) == (0, None)


def test_the_final_line_is_stable(tmp_path: Path) -> None:
    line = report(two_epochs(tmp_path, 100)).final_line
    assert line == (
        f"AIPerf: score={2 * EPOCH / 100:.6e} regulated={-log(0.1) * 2 * EPOCH / 100:.6e} error=0.100000 "
        "duration=100.000 replicas=1 status=UNOFFICIAL"
    )


def test_a_failed_run_has_no_score(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(30).epoch(1, 1, correct=324)
    run.at(60).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 60_000))
    for state in (None, "interrupted", "failed"):
        failed = build_report(read_run(run.paths), state)
        assert (failed.status, failed.score_ops, failed.regulated_score_ops) == ("FAILED", None, None)
        assert failed.ops_per_accelerator is None
        assert failed.operations_total == EPOCH
    assert failed.final_line == (
        "AIPerf: score=invalid regulated=invalid error=0.100000 duration=60.000 replicas=1 status=FAILED"
    )


def test_only_those_who_watch_a_run_see_its_score_so_far(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(30).epoch(1, 1, correct=324)
    data = read_run(run.paths)
    assert build_report(data).score_ops is None
    assert build_report(data, "running").score_ops == EPOCH / 30


def test_phases_fill_the_time_of_a_replica(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    phases_began: list[tuple[int, Phase]] = [(10, "search"), (15, "train"), (60, "evaluate"), (70, "train")]
    for t_s, phase in phases_began:
        run.at(t_s).replicas[0].append(PhaseBegan(replica=0, trial=1, phase=phase))
    replica = report(run.end(100)).replica_details[0]
    assert replica.busy_fraction == 1.0, "from the first step on nothing but training and evaluation"
    phases = replica.phases_s
    assert phases == {"idle": 10.0, "search": 5.0, "train": 75.0, "evaluate": 10.0}


def test_reports_fit_their_schema_and_the_schema_is_the_models(tmp_path: Path) -> None:
    schema = json.loads(resources.files("analysis").joinpath("report.schema.json").read_text())
    assert schema == Report.model_json_schema(mode="serialization"), "run: make schema"
    for run in (two_epochs(tmp_path / "a", 500), HandMadeRun(tmp_path / "b")):
        jsonschema.validate(json.loads(report(run).model_dump_json()), schema)


def test_every_property_of_the_schema_is_described() -> None:
    def undescribed(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from (name for name, about in schema.get("properties", {}).items() if not about.get("description"))
            schema = list(schema.values())
        if isinstance(schema, list):
            for inner in schema:
                yield from undescribed(inner)

    assert [*undescribed(Report.model_json_schema(mode="serialization"))] == []
    assert [*undescribed({"properties": {"x": {"title": "X"}}})] == ["x"], "the search itself finds what is missing"


def test_node_facts_are_reported_as_they_were_recorded(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path)
    facts = {"0": {"host": "n1", "memory_bytes": 2**33, "tensorflow-cpu": None, "a_later_fact": 1.5}}
    run.paths.system.write_text(json.dumps(facts))
    assert report(run).system == facts
    run.paths.system.write_text(json.dumps({"0": {"host": ["n1"]}}))
    assert report(run).system == {}, "a damaged file does not spoil the report"


def describe(run: HandMadeRun, **nodes: tuple[str, int]) -> None:
    facts = {name.removeprefix("r"): {"host": host, "accelerators": count} for name, (host, count) in nodes.items()}
    run.paths.system.write_text(json.dumps(facts))


def test_ranks_on_cpus_are_not_accelerators(tmp_path: Path) -> None:
    run = two_epochs(tmp_path, 100)
    describe(run, r0=("n1", 0))
    result = report(run)
    assert (result.accelerators, result.ranks, result.ops_per_accelerator) == (0, 1, None)
    assert [(part.accelerators, part.ranks) for part in result.replica_details] == [(0, 1)]


@pytest.mark.parametrize(
    ("overrides", "nodes", "own", "total"),
    [
        ({}, {"r0": ("n1", 8)}, [8], 8),
        ({"run.replicas": 2}, {"r0": ("n1", 3), "r1": ("n1", 3)}, [1, 2], 3),
        ({"run.replicas": 2}, {"r0": ("n1", 1), "r1": ("n1", 1)}, [1, 1], 1),
        ({"run.replicas": 2, "run.launcher": "ssh"}, {"r0": ("n1", 4), "r1": ("n2", 4)}, [4, 4], 8),
        (
            {"run.replicas": 2, "run.launcher": "ssh", "replica.per_node": 2},
            {"r0": ("n1", 4), "r1": ("n1", 4)},
            [2, 2],
            4,
        ),
        ({"run.launcher": "slurm", "replica.nodes": 2}, {"r0": ("n1", 4)}, [8], 8),
    ],
)
def test_accelerators_are_the_devices_of_the_nodes(
    overrides: dict[str, Any], nodes: dict[str, tuple[str, int]], own: list[int], total: int, tmp_path: Path
) -> None:
    run = HandMadeRun(tmp_path, overrides).at(0).release(100, replicas=len(nodes)).at(1).start_trial(1)
    describe(run.at(50).epoch(1, 1).end(100), **nodes)
    result = report(run)
    assert [part.accelerators for part in result.replica_details] == own
    assert (result.accelerators, result.ranks) == (total, len(nodes))
    assert result.ops_per_accelerator == EPOCH / 100 / total


def test_the_versions_of_a_report_identify_the_source(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path)
    versions = report(run).versions
    assert versions["source_hash"] == source_hash()
    revision, dirty = git_state()
    assert versions["git_revision"] == revision
    assert versions["git_dirty"] == {True: "true", False: "false", None: None}[dirty]
    manifest = json.loads(run.paths.run.read_text())
    run.paths.run.write_text(json.dumps({k: v for k, v in manifest.items() if k not in ("git_dirty", "source_hash")}))
    old = report(run).versions
    assert (old["git_dirty"], old["source_hash"]) == (None, None)


def test_foreign_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.zip").write_bytes(b"PK\5\6" + bytes(18))
    (tmp_path / "run.tar.xz").write_bytes(b"\xfd7zXZ\0")
    packed = "unpack it and name its folder"
    for path, message in (
        (tmp_path / "run.zip", f"is not a directory but an empty ZIP archive; {packed}"),
        (tmp_path / "run.tar.xz", f"is not a directory but packed by xz; {packed}"),
        (tmp_path / "none", "is not a directory"),
        (tmp_path, "has no run.json"),
    ):
        with pytest.raises(RunDirectoryError, match=message):
            open_run(path)
    (tmp_path / "run.json").write_text('{"rules_version": "aiperf-1"}')
    with pytest.raises(RunDirectoryError, match="is not a run of this program"):
        read_run(RunPaths(tmp_path))
    run = HandMadeRun(tmp_path / "old")
    run.paths.run.write_text(run.paths.run.read_text().replace('"aiperf-1"', '"aiperf-0"'))
    with pytest.raises(RunDirectoryError, match="rules version is 'aiperf-0'"):
        read_run(run.paths)


def test_a_pause_after_the_first_step_is_not_busy(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    began: list[tuple[int, Phase]] = [(20, "train"), (60, "idle"), (70, "build"), (80, "train"), (90, "evaluate")]
    for t_s, phase in began:
        run.at(t_s).replicas[0].append(PhaseBegan(replica=0, trial=1, phase=phase))
    assert report(run.end(100)).replica_details[0].busy_fraction == pytest.approx(60 / 80)
    nothing = HandMadeRun(tmp_path / "b").at(0).release(10)
    assert report(nothing.end(10)).replica_details[0].busy_fraction is None


def test_the_precision_of_every_trial_is_checked(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(50)
    started = TrialStarted(
        trial=1,
        replica=0,
        round=1,
        architecture=run.architecture.hash,
        parent=None,
        hyperparameters={},
        epochs=1,
        precision="mixed_float8",
    )
    run.at(1).replicas[0].append(started)
    result = report(run.at(9).epoch(1, 1).end(50))
    assert result.trials[0].precision == "mixed_float8"
    assert next(v.found for v in result.violations if v.rule == "precision") == "mixed_float8"


def test_a_replica_that_is_lost_with_its_trial_is_one_failure(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100, replicas=2).at(1).start_trial(1).start_trial(2, replica=1)
    run.at(30).progress(1, 1, 400).at(36).lose(0).at(40).rejoin(0).at(41).start_trial(3).at(60).lose(0).end(100)
    found = report(run).failures
    assert [(part.t_s, part.what) for part in found] == [
        (36.0, "replica 0 lost, with trial 1"),
        (60.0, "replica 0 lost, with trial 3"),
    ]
    assert {part.reason for part in found} == {"power cut"}
    assert found[0].lost_operations == 400 * COST.total


def test_a_trial_that_is_lost_with_its_primary_is_a_failure_of_its_own(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(30).epoch(1, 1).at(40).resume()
    run.rejoin(0).at(60).lose(0).end(100)
    assert [part.what for part in report(run).failures] == ["trial 1 on replica 0 lost", "replica 0 lost"]
