"""Rehearsals: true run directories, the same each time, and books that find planted bugs."""

import hashlib
import itertools
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aiperf.__main__ import main
from aiperf.config.settings import load_config
from aiperf.records.bodies import EpochCompleted, JobIssued, ProgressMade, TrialStarted
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Message, Recorded
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.ranking import rank
from analysis.results.source import read_result
from analysis.verbs.ranking_page import date_of
from benchmarks.scale.slow import rehearsed as rehearsed_slow
from primary.work.interrupted import Interrupted
from referee.replay import replay
from rehearsal.lifecycle import Rehearsal, conduct
from rehearsal.machine.file import MachineFile, read_machine
from rehearsal.virtual.processes import VirtualProcess
from tests.faults.rehearsals import rehearse_seed
from tests.support.folders import ROOT

MACHINE = ROOT / "examples" / "machines" / "h100-8x8.toml"
REPLICAS, DURATION = 4, "20m"
CLEAN_SEEDS = range(1, 7)
MOST_SEEDS = 100


def rehearse(output: Path, *words: str) -> int:
    return main(
        [
            "rehearse",
            "--machine",
            str(MACHINE),
            "--replicas",
            "2",
            "--duration",
            "20m",
            "--output",
            str(output),
            *words,
        ]
    )


def hash_of(root: Path) -> str:
    files = sorted(RunPaths(root).history_files("*"))
    return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


def reports_of(root: Path) -> dict[int, list[int]]:
    """Times of reports of progress in ms, by trial."""
    found: dict[int, list[int]] = {}
    for record in HistoryReader(RunPaths(root)).read_new().records:
        if isinstance(record.body, ProgressMade):
            found.setdefault(record.body.trial, []).append(record.monotonic_ms)
    return found


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rehearsal") / "run"
    assert rehearse(root) == 0
    return root


def test_it_ends_with_the_line_of_a_run(rehearsed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(rehearsed)]) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("AIPerf: score=")
    assert last.endswith("replicas=2 status=SIMULATED")


def test_every_verb_reads_it(rehearsed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(rehearsed)]) == 0
    assert main(["check", str(rehearsed)]) == 0
    assert "simulated" in capsys.readouterr().out.lower()
    assert main(["rank", str(rehearsed), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["rank"], row["status"]) == (None, "simulated")


def test_building_counts_as_building(rehearsed: Path) -> None:
    report = build_report(read_run(RunPaths(rehearsed)))
    build_s = read_machine(MACHINE).start.build_s
    assert [replica.phases_s.get("build") for replica in report.replica_details] == [build_s] * report.replicas
    assert all(replica.phases_s.get("search", 0) < 1 for replica in report.replica_details)


def test_its_dates_are_virtual_and_it_says_when_it_was_made(rehearsed: Path, tmp_path: Path) -> None:
    report = build_report(read_run(RunPaths(rehearsed)))
    assert report.assumed is not None
    assert report.assumed.made is not None
    assert report.started is not None
    assert report.started.startswith("2023-11-14")
    day = date_of(report.assumed.made)
    page = (rehearsed / "report" / "report.html").read_text()
    assert f"14 Nov 2023 22:13 UTC of virtual time, rehearsed on {day}, ran to its deadline" in page
    (row,) = rank([read_result(rehearsed)], "score").rows
    assert row.started == report.made == report.assumed.made, "2023 is no date of a result"


def test_its_nodes_are_those_of_the_machine_file(rehearsed: Path) -> None:
    described = json.loads((rehearsed / "system.json").read_text())
    nodes = [described[replica] for replica in ("0", "1")]
    assert {node["host"] for node in nodes} == {"rehearsed-0000", "rehearsed-0001"}
    assert {(node["accelerators"], node["accelerator"]) for node in nodes} == {(8, "NVIDIA H100 80GB HBM3")}
    assert {(node["cpu_model"], node["memory_bytes"]) for node in nodes} == {(None, None)}, "those of this machine"
    assert not any({"slurm_node", "accelerator_driver"} & node.keys() for node in nodes), "of this machine, too"
    page = (rehearsed / "report" / "report.html").read_text()
    assert "2 replicas on 2 nodes" in page
    assert "2 replicas with 8 accelerators each" in page


def test_the_same_seed_gives_the_same_records_byte_for_byte(rehearsed: Path, tmp_path: Path) -> None:
    assert rehearse(tmp_path / "again") == 0
    assert rehearse(tmp_path / "other", "--seed", "2") == 0
    assert hash_of(tmp_path / "again") == hash_of(rehearsed)
    assert hash_of(tmp_path / "other") != hash_of(rehearsed)


def test_plans_of_a_modelled_search_are_replayed(tmp_path: Path) -> None:
    words = ("--search", "modelled", "--set", "search.hpo_first_round=2", "--set", "training.max_epochs=4")
    assert rehearse(tmp_path / "run", *words) == 0
    found = replay(RunPaths(tmp_path / "run"), None)
    assert found.differences == ()
    assert found.equal == found.checked > 4
    bodies = [record.body for record in HistoryReader(RunPaths(tmp_path / "run")).read_new().records]
    assert any(body.point > 0 for body in bodies if isinstance(body, TrialStarted))


def test_many_replicas_report_once_a_minute_but_for_the_last_minutes(
    rehearsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rehearsal.verbs.rehearse.FEW", 1)
    assert rehearse(tmp_path / "run") == 0
    every, sparse = reports_of(rehearsed), reports_of(tmp_path / "run")
    assert sum(map(len, sparse.values())) < sum(map(len, every.values())) / 2
    apart = {trial: [after - before for before, after in itertools.pairwise(times)] for trial, times in sparse.items()}
    assert max(itertools.chain(*apart.values())) >= 60_000
    last = max(max(times) for times in every.values())
    assert last - max(max(times) for times in sparse.values()) <= 10_000
    (one, other) = (build_report(read_run(RunPaths(root))) for root in (rehearsed, tmp_path / "run"))
    assert other.operations_total == pytest.approx(one.operations_total, rel=0.01)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["rehearsed"]["report_s"] == 60.0


def test_a_rehearsal_that_says_it_was_none_is_damaged(rehearsed: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.mkdir()
    for file in rehearsed.rglob("*"):
        target = forged / file.relative_to(rehearsed)
        target.mkdir(parents=True, exist_ok=True) if file.is_dir() else target.write_bytes(file.read_bytes())
    manifest = json.loads((forged / "run.json").read_text())
    del manifest["rehearsed"]
    (forged / "run.json").write_text(json.dumps(manifest))
    assert main(["check", str(forged)]) != 0


def test_too_few_open_files_for_its_replicas_are_named_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primary.open_files.resource.getrlimit", lambda which: (64, 128))
    assert rehearse(tmp_path / "run") == 3
    assert "needs 258 open files, of 128 allowed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_prediction_has_a_band_for_every_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rehearsal.prediction.LARGEST_REHEARSED", 2)
    words = ["--machine", str(MACHINE), "--replicas", "6", "--duration", "20m", "--output", str(tmp_path / "predicted")]
    assert main(["predict", *words, "--seeds", "2", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["replicas"], row["rehearsed"]) for row in rows] == [(1, True), (2, True), (4, False), (6, False)]
    for row in rows:
        for key in ("score_ops", "regulated_score_ops", "efficiency", "error"):
            assert row[key]["low"] <= row[key]["value"] <= row[key]["high"]
        assert row["score_ops"]["value"] == pytest.approx(row["replicas"] * rows[0]["score_ops"]["value"], rel=0.1)
    assert rows[-1]["error"]["value"] <= rows[1]["error"]["value"]
    assert rows[-1]["first_limit"]["replicas"] > 100
    assert {file.name for file in (tmp_path / "predicted").iterdir()} == {
        "machine.toml",
        "prediction.json",
        "prediction.svg",
        "prediction.png",
    }


def test_a_machine_that_cannot_train_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small.toml"
    small.write_text("[step]\noperations_per_s = 1e13\n[node]\nmemory_gib = 1.0\n")
    words = ["--machine", str(small), "--replicas", "1", "--duration", "20m", "--seeds", "1"]
    assert main(["predict", *words]) == 2
    assert "too large for the memory" in capsys.readouterr().err


def test_what_breaks_is_in_the_log_and_not_on_the_terminal(tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    machine.write_text(MACHINE.read_text().replace("rank_mtbf_h = 50000.0", "rank_mtbf_h = 1.0"))
    words = ["--replicas", "2", "--duration", "10m", "--search", "modelled", "--no-page"]
    done = subprocess.run(
        [sys.executable, "-m", "aiperf", "rehearse", "--machine", machine, *words, "--output", tmp_path / "run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "a rank of the rehearsal died" in RunPaths(tmp_path / "run").primary_log.read_text()
    assert "a rank of the rehearsal died" not in done.stderr


def test_a_training_is_resumed_from_its_checkpoint_by_whichever_replica_is_free(tmp_path: Path) -> None:
    machine = MachineFile.model_validate(
        {
            "step": {"operations_per_s": 7e13},
            "start": {"replica_s": 400.0},
            "failures": {"node_mtbf_h": 2.0},
        }
    )
    config = load_config(
        overrides={
            "run.replicas": 8,
            "run.duration": "4h",
            "training.trainer": "simulated",
            "search.strategy": "random",
            "search.hpo": "random",
            "training.checkpoint_interval": "60s",
        }
    )
    conduct(tmp_path / "run", Rehearsal(config, machine))
    bodies = [record.body for record in HistoryReader(RunPaths(tmp_path / "run")).read_new().records]
    jobs = {body.trial: body for body in bodies if isinstance(body, JobIssued)}
    elsewhere = {body.trial for body in jobs.values() if body.resumes and jobs[body.resumes].replica != body.replica}
    first = {body.trial: body.epoch for body in reversed(bodies) if isinstance(body, EpochCompleted)}
    begun = [first[trial] for trial in elsewhere if trial in first]
    assert len(begun) > 1
    assert min(begun) > 1


Judge = Callable[[int], tuple[list[str], Counter[str]]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Problems and faults of the rehearsal of a seed."""
    root = tmp_path_factory.mktemp("seeds")
    return cache(lambda seed: rehearse_seed(seed, REPLICAS, DURATION, root / str(seed)))


@pytest.mark.parametrize("seed", CLEAN_SEEDS)
def test_nothing_is_lost_or_doubled_whatever_breaks(seed: int, judged: Judge) -> None:
    problems, _ = judged(seed)
    assert problems == []


def test_the_seeds_of_the_suite_meet_every_kind_of_fault(judged: Judge) -> None:
    kinds = {kind for seed in CLEAN_SEEDS for kind in judged(seed)[1]}
    assert kinds == {"node", "rack", "primary", "storage"}


def lose_messages(patch: pytest.MonkeyPatch) -> None:
    """Every tenth report of an epoch never reaches the primary."""
    take, number = VirtualProcess._take, itertools.count(1)

    def lossy(self: VirtualProcess, message: Message) -> None:
        if not isinstance(message, Recorded) or next(number) % 10:
            take(self, message)

    patch.setattr(VirtualProcess, "_take", lossy)


def act_early(patch: pytest.MonkeyPatch) -> None:
    """Replicas report what is not durable yet."""
    patch.setattr(HistoryWriter, "after", lambda self, callback: callback())


def hand_back_twice(patch: pytest.MonkeyPatch) -> None:
    """A training whose replica is lost is resumed by two others."""
    hand_back: Callable[..., Any] = Interrupted.hand_back

    def twice(self: Interrupted, *arguments: Any) -> bool:
        hand_back(self, *arguments)
        return bool(hand_back(self, *arguments))

    patch.setattr(Interrupted, "hand_back", twice)


@pytest.mark.parametrize(("plant", "first"), [(lose_messages, 1), (act_early, 61), (hand_back_twice, 1)])
def test_a_bug_is_found_within_a_hundred_seeds(
    plant: Callable[[pytest.MonkeyPatch], None], first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any of the seeds may find it: it begins with one that did, and goes on with the others."""
    plant(monkeypatch)

    def bad_seeds() -> Iterator[int]:
        for seed in sorted(range(1, MOST_SEEDS + 1), key=lambda seed: (seed < first, seed)):
            if rehearse_seed(seed, REPLICAS, DURATION, tmp_path / str(seed))[0]:
                yield seed

    assert next(bad_seeds(), None) is not None


def test_replicas_that_are_not_ready_in_time_are_recorded_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = {
        "run.dataset": "digits",
        "run.replicas": 3,
        "run.duration": 60,
        "run.start_timeout": 25,
        "training.trainer": "simulated",
    }
    one_by_one = MachineFile.model_validate(
        {"step": {"operations_per_s": 1e11}, "start": {"replica_s": 20.0, "together": 1}}
    )
    conduct(tmp_path / "run", Rehearsal(load_config(overrides=settings), one_by_one))
    found = build_report(read_run(RunPaths(tmp_path / "run")))
    assert (found.status, found.replicas, found.took_part) == ("SIMULATED", 3, 3), "the late ones joined"
    late = [failure for failure in found.failures if failure.what.endswith("did not come")]
    assert [failure.what for failure in late] == ["replica 1 did not come", "replica 2 did not come"]
    assert all(failure.reason.startswith("not ready within 25 s") for failure in late)
    assert [round(part.phases_s.get("down", 0.0)) for part in found.replica_details] == [0, 15, 35]
    assert caplog.text.index("waiting for 3 of 3 replicas, each for its") < caplog.text.index("not ready within 25 s")
    assert found.damages == ()


@pytest.mark.parametrize("share", [0.04, 0.0], ids=["slow", "even"])
def test_replicas_that_are_slower_by_8_percent_are_named_and_no_other(tmp_path: Path, share: float) -> None:
    slow, named = rehearsed_slow(tmp_path / "run", 1, share, replicas=64)
    assert named == slow
    assert bool(slow) == (share > 0)
