"""A series of runs: killed at every point, extended, and used by two at once."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import RunFailedError, UsageError
from aiperf.records.bodies import RunEnded
from primary import preflight
from primary.managers import EndReason
from primary.scaling import runs
from primary.scaling.runs import SERIES, Growth, is_over, run_series
from tests.support.hand_made import HandMadeRun

CONFIG = load_config(overrides={"run.dataset": "digits"})
WORDS = ("--dataset", "digits")
ONE, TWO, FOUR = (Growth().member(count, CONFIG) for count in (1, 2, 4))


def folders_only(target: Path) -> None:
    """A run that is killed after it made its folders."""
    for name in ("history", "models", "candidates", "logs"):
        (target / name).mkdir(parents=True)
    (target / ".run.json.0a.tmp").write_bytes(b"{")


def unreleased(target: Path) -> None:
    """A run that is killed after its run.json was written."""
    HandMadeRun(target)


def released(target: Path) -> None:
    """A run that is killed while its replicas train."""
    HandMadeRun(target).at(0).release(100).at(1).start_trial(1).at(5).epoch(1, 1)


def interrupted(target: Path) -> None:
    """A run whose primary has stopped it in order."""
    run = HandMadeRun(target).at(0).release(100).at(1).start_trial(1).at(5).epoch(1, 1)
    run.primary.append(RunEnded(reason="interrupted", end_ms=run.clock.now_ms))


def ended(target: Path, reason: EndReason) -> None:
    """A run that has ended for a reason, and has no report yet."""
    run = HandMadeRun(target).at(0).release(100).at(1)
    run.tell(RunEnded(reason=reason, end_ms=run.clock.now_ms))


KILLS: dict[str, tuple[Callable[[Path], None] | None, str | None]] = {
    "before anything": (None, "run"),
    "with folders only": (folders_only, "run"),
    "before the release": (unreleased, "resume"),
    "while it trains": (released, "resume"),
    "after an interruption": (interrupted, "resume"),
    "after its deadline": (lambda target: ended(target, "deadline"), None),
    "after its last model": (lambda target: ended(target, "completed"), None),
}
"""States in which a kill leaves the second run of a series, and how the series treats it then."""


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of every `aiperf` that a series starts; each ends its run at once."""
    found: list[list[str]] = []

    def run(self: runs.Programs, words: Sequence[str]) -> int:
        found.append([*words])
        target = Path(words[-1])
        if words[0] == "run":
            preflight.check(CONFIG, target)
            if target.exists():
                assert [path for path in target.rglob("*") if path.is_file()] in ([], [target / ".run.json.0a.tmp"])
            ended(target, "completed")
        return 0

    monkeypatch.setattr(runs.Programs, "run", run)
    return found


@pytest.mark.parametrize("kill", list(KILLS))
def test_a_series_that_was_killed_ends_with_the_same_runs(kill: str, tmp_path: Path, called: list[list[str]]) -> None:
    leave, expected = KILLS[kill]
    assert run_series(tmp_path, [ONE], WORDS) == [tmp_path / "replicas-0001"]
    called.clear()
    if leave is not None:
        leave(tmp_path / "replicas-0002")
    targets = run_series(tmp_path, [ONE, TWO, FOUR], WORDS)
    assert targets == [tmp_path / f"replicas-000{count}" for count in (1, 2, 4)]
    second, fourth = map(str, targets[1:])
    begun = {"run": ["run", *WORDS, "--replicas", "2", "--output", second], "resume": ["resume", second]}
    fresh = ["run", *WORDS, "--replicas", "4", "--output", fourth]
    assert called == [*([begun[expected]] if expected else []), fresh], "the first run is kept"


def test_a_second_call_with_more_counts_adds_only_these(tmp_path: Path, called: list[list[str]]) -> None:
    for members in ([TWO], [ONE, TWO, FOUR], [ONE, TWO, FOUR]):
        run_series(tmp_path, members, WORDS)
    assert [words[-3] for words in called] == ["2", "1", "4"]
    with pytest.raises(UsageError, match="holds a series with other options: --dataset digits"):
        run_series(tmp_path, [ONE], ("--dataset", "images"))


@pytest.mark.parametrize(
    ("reason", "over"), [("deadline", True), ("completed", True), ("interrupted", False), ("no_replicas", False)]
)
def test_runs_of_both_suites_are_over_once_nothing_is_left(tmp_path: Path, reason: EndReason, over: bool) -> None:
    ended(tmp_path, reason)
    assert is_over(tmp_path) is over


def test_a_directory_of_a_run_that_never_began_is_used_and_no_other(tmp_path: Path) -> None:
    folders_only(tmp_path / "run")
    preflight.check(CONFIG, tmp_path / "run")
    own = tmp_path / "run" / "hyperparameters.json"
    own.write_text("{}")
    with pytest.raises(UsageError, match="is not empty"):
        preflight.check(CONFIG, tmp_path / "run")
    assert preflight.output_problems(tmp_path / "run", with_space=True) == []
    own.rename(tmp_path / "run" / "history" / "primary-1.jsonl")
    with pytest.raises(UsageError, match="is not empty"):
        preflight.check(CONFIG, tmp_path / "run")


def stand_in(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a series start a script in place of `aiperf`; its words are in sys.argv."""
    monkeypatch.setattr(runs, "python_module", lambda _, *words: (sys.executable, "-c", script, *words))


def test_a_signal_is_passed_on_and_ends_the_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        monkeypatch,
        f"""if True:
        import os, signal, sys
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill({os.getpid()}, signal.SIGTERM)
        signal.sigwait([signal.SIGTERM])
        sys.exit(7)
    """,
    )
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RunFailedError, match="with 1 replicas ended with exit code 7; the same command resumes"):
        run_series(tmp_path, [ONE, TWO], WORDS)
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_program_starts_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "raise SystemExit('started')")
    programs = runs.Programs(None, 0)
    programs.end()
    with pytest.raises(RunFailedError, match="the series was interrupted; the same command resumes the series"):
        programs.run(["run"])


def test_a_series_waits_for_the_run_of_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: list[list[str]]
) -> None:
    run_series(tmp_path, [ONE], WORDS)
    called.clear()
    with (tmp_path / SERIES).open("r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        orphan = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[stream.fileno()]
        )
    said: list[str] = []

    def finish(*lines: str) -> None:
        said.extend(lines)
        released(tmp_path / "replicas-0002")
        orphan.communicate(b"\n")

    monkeypatch.setattr(runs, "warn", finish)
    run_series(tmp_path, [ONE, TWO], WORDS)
    assert said == [f"waiting for the process that works on the series {tmp_path}"]
    assert called == [["resume", str(tmp_path / "replicas-0002")]], "what the other one has done is seen"
    assert json.loads((tmp_path / SERIES).read_bytes()) == {"options": [*WORDS]}


def test_a_program_holds_the_series_as_long_as_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a run that outlives a killed series is waited for: the lock is the program's, too."""
    stand_in(
        monkeypatch,
        """if True:
        import fcntl, os, sys
        series = os.path.join(os.path.dirname(sys.argv[-1]), "series.json")
        held = [fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.realpath(f"/proc/self/fd/{fd}") ==
                os.path.realpath(series)]
        sys.exit(0 if held else 9)
    """,
    )
    run_series(tmp_path, [ONE], WORDS)
