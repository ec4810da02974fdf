"""One state of a run, told the same by status, dashboard, report, page, ranking and check."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, Literal

import pytest

from aiperf.__main__ import main
from aiperf.clock import SystemClock
from aiperf.records.bodies import RunEnded
from aiperf.run_directory.claim import Claim
from aiperf.run_directory.manifest import Rehearsed
from aiperf.run_directory.paths import RunPaths
from analysis.output.page.view import report_page
from analysis.output.tables import closing_lines
from analysis.report.build import build_report
from analysis.report.model import Report
from analysis.report.state import read_now
from dashboard.wording import sentence_of, state_of
from dashboard.work import Task
from dashboard.worker import answers
from tests.support.hand_made import T0_MS, HandMadeRun, ManualClock

End = Literal["deadline", "interrupted", "no_replicas"] | None
DURATION_S = 100


def cut(root: Path, at_s: float, end: End, **settings: Any) -> HandMadeRun:
    """A run as its records are at a moment, with the end that is recorded by then."""
    run = HandMadeRun(root, {"run.duration": DURATION_S, "run.replicas": 2, **settings}).at(0)
    if at_s > 0:
        run.release(DURATION_S, replicas=2)
    if at_s > 1:
        run.at(1).start_trial(1)
    if at_s > 40:
        run.at(40).epoch(1, 1, correct=324)
    if at_s > 50:
        run.at(50).lose(1)
    if end is not None:
        run.at(at_s).tell(RunEnded(reason=end, end_ms=T0_MS + round(at_s * 1000)))
    return run


@contextlib.contextmanager
def conducted(run: HandMadeRun, alive: bool) -> Iterator[None]:
    """With a primary, or with one that has gone and left its run behind."""
    with Claim.acquire(run.paths.claims, ManualClock()) if alive else contextlib.nullcontext():
        yield


def expected(at_s: float, end: End, alive: bool) -> str:
    """The state by an independent reading of what was put into the directory."""
    if alive and end is None:
        return "running" if at_s > 0 else "starting"
    if end == "deadline":
        return "ended"
    if at_s >= DURATION_S or (end == "no_replicas" and at_s <= 0):
        return "failed"
    return "interrupted" if at_s > 0 or end is not None else "starting"


def words(paths: RunPaths, read: Callable[[], str]) -> dict[str, str]:
    """What each teller says, by its name; `read` gives what was printed since the last time."""

    def told(*arguments: object) -> tuple[int, str]:
        read()
        return main([str(argument) for argument in arguments]), read()

    (answer,) = answers(Task(run=paths.root))
    now_ms = SystemClock().utc_ms()
    data, state, _ = read_now(paths, now_ms)
    report = build_report(data, state)
    page = report_page(data, report)
    badge = re.search(r'<span id="status" class="badge \w+">(\w+)<', page)
    title = re.search(r"<title>(.*?)</title>", page)
    assert badge is not None
    assert title is not None
    code, shown = told("check", paths.root, "--format", "json", "--replay", "0")
    row = json.loads(told("rank", paths.root, "--format", "json")[1])["rows"][0]
    return {
        "status": json.loads(told("status", paths.root, "--format", "json")[1])["state"],
        "line": told("status", paths.root)[1].splitlines()[0],
        "dashboard": state_of(answer),
        "sentence": sentence_of(answer),
        "verdict": report.verdict,
        "badge": badge[1],
        "title": unescape(title[1]),
        "page": unescape(re.sub(r"(?s)<(style|script)\b.*?</\1>|<[^>]+>", "", page)),
        "closing": "\n".join(closing_lines(report)),
        "rank": row["status"],
        "rank score": str(row["score_ops"]),
        "check": json.loads(shown)["verdict"].partition(":")[0],
        "exit": str(code),
    }


MOMENTS: list[tuple[float, End, bool]] = [
    (0, None, True),
    (0.5, None, True),
    (20, None, True),
    (45, None, True),
    (60, None, True),
    (101, None, True),
    (0, "no_replicas", False),
    (45, "interrupted", False),
    (60, "no_replicas", False),
    (60, None, False),
    (100, None, False),
    (100, "deadline", False),
    (100, "deadline", True),
]


@pytest.mark.parametrize(("at_s", "end", "alive"), MOMENTS)
def test_all_tellers_agree_at_every_moment(
    at_s: float,
    end: End,
    alive: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(SystemClock, "utc_ms", lambda _: T0_MS + round(at_s * 1000))
    run, state = cut(tmp_path, at_s, end), expected(at_s, end, alive)
    with conducted(run, alive):
        said = words(run.paths, lambda: capsys.readouterr().out)
    assert (said["status"], said["dashboard"]) == (state, state)
    in_progress = state in ("starting", "running")
    verdict = "running" if in_progress else "unofficial" if state == "ended" else "invalid"
    assert (said["verdict"], said["rank"], said["check"]) == (verdict, verdict, verdict)
    assert said["badge"] == (state if in_progress or state == "interrupted" else verdict)
    assert said["exit"] == ("0" if state == "ended" else "1")
    assert (
        f"status={ {'running': 'RUNNING', 'unofficial': 'UNOFFICIAL', 'invalid': 'FAILED'}[verdict] }"
        in said["closing"]
    )
    everything = " ".join(said.values()).lower()
    if in_progress:
        assert not re.search(r"\binvalid\b|\bfailed\b|completion \(|measured\)", everything)
        assert "the settings break" in everything
        assert said["rank score"] == "None", "no result yet"
    if state == "running":
        assert ("so far" in said["line"], "so far" in said["sentence"], "so far" in said["title"]) == (True,) * 3
    assert ("so far" in said["line"]) <= in_progress
    assert ("aiperf resume" in said["line"]) == (state == "interrupted")
    assert ("aiperf resume" in said["sentence"]) == (state == "interrupted")


def report_of(run: HandMadeRun) -> Report:
    data, state, _ = read_now(run.paths, T0_MS + 10**6)
    return build_report(data, state)


def test_while_it_runs_only_what_its_settings_break_is_named(tmp_path: Path) -> None:
    run = cut(tmp_path, 45, None)
    with conducted(run, True):
        report = report_of(run)
    broken = {item.rule for item in report.violations}
    assert {"dataset", "duration"} <= broken
    assert not broken & {"completion", "work", "error", "evidence", "plausible", "records"}
    assert report.rules == tuple(rule for rule in report.rules if not rule.passed)
    (duration,) = (item.found for item in report.violations if item.rule == "duration")
    assert duration == "100 s", "what is measured so far breaks nothing"


def test_the_simulated_trainer_is_simulated_and_says_so(tmp_path: Path) -> None:
    run = cut(tmp_path / "run", 45, None, **{"training.trainer": "simulated"}).end(DURATION_S)
    report = report_of(run)
    assert (report.status, report.verdict, report.simulated) == ("SIMULATED", "simulated", True)
    assert "nothing was trained: The simulated trainer" in "\n".join(closing_lines(report))
    running = cut(tmp_path / "running", 45, None, **{"training.trainer": "simulated"})
    with conducted(running, True):
        so_far = report_of(running)
    assert (so_far.status, so_far.simulated) == ("RUNNING", True)
    data, _, _ = read_now(running.paths, T0_MS)
    assert "Nothing was trained." in report_page(data, so_far)


def test_a_rehearsal_says_what_it_assumed(tmp_path: Path) -> None:
    facts = Rehearsed(
        machine="8 x 8 H100",
        search="modelled",
        source="7 % of peak",
        accelerator="NVIDIA H200",
        operations_per_s=6.9e13,
    )
    run = cut(tmp_path, 45, None, **{"training.trainer": "simulated"}).end(DURATION_S).support(DURATION_S)
    data, state, _ = read_now(run.paths, T0_MS)
    data = replace(data, manifest=data.manifest.model_copy(update={"rehearsed": facts}))
    report = build_report(data, state)
    assert report.assumed is not None
    assert (report.status, report.assumed.operations_per_s) == ("SIMULATED", 6.9e13)
    page = report_page(data, report)
    for told in ("Nothing was trained.", "8 x 8 H100", "7 % of peak", "69.0 TOPS", "of virtual time", "would reach"):
        assert told in page, told


def test_replicas_that_never_came_are_counted_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 4, "run.duration": DURATION_S}).at(0).release(DURATION_S, replicas=2)
    run.at(0).lose(2, "not ready within 20 s: SLURM job 7 is PENDING: it waits in the queue, reason Resources")
    run.at(1).start_trial(1).at(40).epoch(1, 1).end(DURATION_S)
    report = report_of(run)
    assert (report.replicas, report.took_part) == (4, 2)
    assert [part.state for part in report.replica_details] == ["finished", "finished", "lost", "absent"]
    assert [part.phases_s for part in report.replica_details[2:]] == [{"down": 100.0}] * 2
    assert report.phases_s["down"] == 200.0
    told = [(failure.what, failure.reason) for failure in report.failures if "did not come" in failure.what]
    assert [what for what, _ in told] == ["replica 2 did not come", "replica 3 did not come"]
    assert "reason Resources" in told[0][1]
    assert " replicas=2 " in report.final_line
    arrangement = next(rule for rule in report.rules if rule.rule == "arrangement")
    assert arrangement.found == "a primary and 2 of 4 replicas at the start"
    data, _, _ = read_now(run.paths, T0_MS)
    page = report_page(data, report)
    assert "2 of 4 replicas" in page
    assert "<p>None.</p>" not in page.partition('id="failures"')[2][:200]
    main(["rank", str(tmp_path)])
    assert "2 of 4" in capsys.readouterr().out
    main(["status", str(tmp_path)])
    shown = capsys.readouterr().out
    assert (" lost " in shown, " absent " in shown) == (True, True)


def test_many_damages_do_not_hide_the_result(tmp_path: Path) -> None:
    run = cut(tmp_path, 45, None)
    for trial in range(2, 32):
        run.tell(RunEnded(reason="deadline", end_ms=T0_MS + trial))
    report = report_of(run.end(DURATION_S))
    lines = list(closing_lines(report))
    assert len(report.damages) > 20
    assert sum(line.startswith("damaged record: ") for line in lines) == 8
    assert f"damaged records: {len(report.damages) - 8} more; aiperf verify names all" in lines
    assert max(map(len, lines)) < 1000, "the rule names them all in report.json alone"
