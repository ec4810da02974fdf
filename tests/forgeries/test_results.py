"""Forgeries of results: reports, copies, clocks, a failure, and what only the audit can find."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from aiperf.__main__ import main
from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.records.bodies import ReplicaLost, RunResumed, TrialClosed, TrialFailed
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from analysis.results.source import RunResult
from referee.audit.pace import difference_of_paces
from referee.audit.recorded import Recorded
from tests.forgeries.claims import CLAIMS, slow_clock
from tests.forgeries.files import FILES
from tests.forgeries.table import Forgery
from tests.support.forging import rewrite
from tests.support.forging.changes import both, of
from tests.support.hand_made import HandMadeRun


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    code = main([*map(str, words), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


ONE_OF_A_ROW: dict[int, Forgery] = {forgery.row: forgery for forgery in [*CLAIMS, *FILES] if not forgery.replayed}


@pytest.mark.parametrize("row", sorted(ONE_OF_A_ROW))
def test_check_and_rank_refuse_one_of_each_row(
    row: int, bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forgery = ONE_OF_A_ROW[row]
    root = shutil.copytree(bases[forgery.base], tmp_path / "run")
    forgery.forge(RunPaths(root))
    code, found = said(capsys, "check", root, "--replay", 0)
    assert found["official"] is False
    assert code == (EXIT_FAILED if found["damages"] else EXIT_DONE)
    kinds = {f"{damage['kind']} {Path(damage['file']).stem}" for damage in found["damages"]}
    broken = {f"rule {rule['rule']}" for rule in found["rules"] if not rule["passed"]}
    assert set(forgery.found) <= kinds | broken
    assert all(damage["line"] for damage in found["damages"] if damage["kind"] in ("bounds", "chain", "time"))
    _, ranking = said(capsys, "rank", root, bases["official"])
    ranks = {item["origin"]: item["rank"] for item in ranking["rows"]}
    assert ranks.pop(str(bases["official"])) == 1
    assert set(ranks.values()) <= {None}


def test_a_bigger_architecture_fails_the_check_and_has_no_rank(
    bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (forgery,) = (item for item in CLAIMS if item.name == "a bigger architecture with its morphs")
    root = shutil.copytree(bases["official"], tmp_path / "run")
    forgery.forge(RunPaths(root))
    code, found = said(capsys, "check", root, "--replay", "all")
    assert (code, found["verdict"], found["official"]) == (EXIT_FAILED, "invalid", False)
    _, ranking = said(capsys, "rank", root, bases["official"])
    assert [(row["origin"], row["rank"]) for row in ranking["rows"]] == [(str(bases["official"]), 1)]
    assert ranking["same"] == [{"origin": str(root), "kept": str(bases["official"])}], "the honest copy is kept"


@pytest.mark.parametrize("status", ["PASSED", "FAILED"])
def test_a_report_without_its_records_is_unverified(
    status: str, honest: RunResult, bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = honest.report.model_dump(mode="json")
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**document, "score_ops": 1e18, "status": status}))
    code, found = said(capsys, "check", file)
    assert (code, found["verdict"], found["official"]) == (EXIT_FAILED, "unverified", False)
    assert main(["check", str(file)]) == EXIT_FAILED
    assert "score=unverified regulated=unverified" in capsys.readouterr().out
    _, ranking = said(capsys, "rank", file, bases["official"])
    assert [(row["status"], row["rank"]) for row in ranking["rows"]] == [("official", 1), ("unverified", None)]


def test_a_run_its_copy_and_its_archive_are_one_row(
    bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(bases["official"], tmp_path / "copy")
    assert main(["export", str(copy), "--file", str(tmp_path / "run.tar.gz")]) == EXIT_DONE
    capsys.readouterr()
    _, ranking = said(capsys, "rank", bases["official"], copy, tmp_path / "run.tar.gz")
    assert [(row["rank"], row["runs"]) for row in ranking["rows"]] == [(1, 1)]
    assert len(ranking["same"]) == 2


def test_a_damaged_copy_does_not_take_the_place_of_the_run(
    bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(bases["official"], tmp_path / "copy")
    (copy / "history" / "replica-0001-1.jsonl").unlink()
    _, ranking = said(capsys, "rank", copy, bases["official"])
    assert [(row["origin"], row["rank"]) for row in ranking["rows"]] == [(str(bases["official"]), 1)]


def kinds_in(root: Path) -> set[str]:
    return {damage.kind for damage in read_run(RunPaths(root)).damages}


def failing(root: Path) -> HandMadeRun:
    run = HandMadeRun(root).at(0).release(100).at(1).start_trial(1)
    return run.at(30).epoch(1, 1).at(40).progress(1, 2, 1400).at(41).fail_trial(1).at(42).start_trial(2).end(100)


@pytest.mark.parametrize("how", [None, "stopped", "lost"])
def test_a_failure_that_was_removed_is_found(how: str | None, tmp_path: Path) -> None:
    run = failing(tmp_path)
    assert kinds_in(tmp_path) == set()
    change = of(TrialFailed)
    rewrite(run.paths, change if how is None else both(change, of(TrialClosed, 1, how=how)))
    assert "conflict" in kinds_in(tmp_path)


def losing(root: Path, back: bool) -> HandMadeRun:
    """A run that loses one of two replicas, which comes back or does not."""
    run = HandMadeRun(root).at(0).release(100, replicas=2).at(1).start_trial(1).at(30).epoch(1, 1).at(40).lose(0)
    if back:
        run.at(45).rejoin(0).at(46).start_trial(2, resumes=1)
    return run.at(50).start_trial(3, replica=1).end(100)


@pytest.mark.parametrize("back", [True, False])
def test_the_loss_of_a_replica_that_was_removed_is_found(back: bool, tmp_path: Path) -> None:
    run = losing(tmp_path, back)
    assert kinds_in(tmp_path) == set()
    assert len(read_run(run.paths).ledger.replica(0).losses) == 1
    rewrite(run.paths, of(ReplicaLost))
    assert kinds_in(tmp_path) == {"conflict"}


@pytest.mark.parametrize("back_s", [30, 3600])
def test_a_clock_that_was_set_back_before_a_resumption_is_found(back_s: int, tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100).at(1).start_trial(1).at(50).epoch(1, 1, 200)
    run.at(50 - back_s).primary = HistoryWriter(run.paths, "primary", run.clock)
    run.primary.append(RunResumed())
    assert "time" in kinds_in(tmp_path)


BY_AUDIT = {
    "invented trainings": lambda paths: None,
    "a clock at half speed": slow_clock,
}


@pytest.mark.parametrize("name", BY_AUDIT)
def test_what_fits_the_devices_passes_the_check(
    name: str, bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """See "What is not found" in docs/trust.md."""
    root = shutil.copytree(bases["official"], tmp_path / "run")
    BY_AUDIT[name](RunPaths(root))
    code, found = said(capsys, "check", root, "--replay", 0)
    assert (code, found["damages"], found["official"]) == (EXIT_DONE, [], True)


def test_a_slow_clock_is_found_by_the_pace_of_the_repetition(bases: dict[str, Path], tmp_path: Path) -> None:
    """The repetition has the pace of the honest run: no clock makes the devices faster."""
    root = shutil.copytree(bases["official"], tmp_path / "run")
    slow_clock(RunPaths(root))
    honest, forged = (Recorded(RunPaths(path), read_run(RunPaths(path))) for path in (bases["official"], root))
    claims = [claim for claim in forged.claims() if claim.operations]
    assert claims
    for claim in claims:
        claimed, repeated = forged.pace(claim), honest.pace(claim)
        assert claimed is not None
        assert repeated is not None
        assert difference_of_paces(repeated, repeated, on_cpus=False)[1]
        assert not difference_of_paces(claimed, repeated, on_cpus=False)[1]


def test_invented_trainings_are_found_by_the_audit_alone(
    bases: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of its eight ranks would find out alike.
    monkeypatch.setattr(Recorded, "ranks", lambda own, entry: 1)
    code, audited = said(capsys, "audit", bases["official"], "--nonce", "a word", "--draws", 1, "--steps", 3)
    assert (code, audited["verdict"]) == (EXIT_FAILED, "failed")
    assert "steps" in {finding["check"] for finding in audited["draws"] if not finding["passed"]}
