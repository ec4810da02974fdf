"""Clock, messages, live view, preflight, host lists."""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.clock import SystemClock, format_utc, parse_utc
from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError, MessageError, UsageError
from aiperf.files import write_atomically
from aiperf.messages import Job, Progress, decode_from_trainer, decode_to_agent, decode_to_primary, encode
from primary import preflight
from primary.display.state import ReplicaView, RunView
from primary.display.terminal import LineDisplay, TerminalDisplay, format_ops, summary
from primary.replica_link import ClockOffset
from slurm.hostlists import expand
from tests.helpers import HandMadeRun, ManualClock


@given(st.integers(0, 4_000_000_000_000))
def test_times_survive_their_text(utc_ms: int) -> None:
    assert parse_utc(format_utc(utc_ms)) == utc_ms


def test_the_clock_runs_with_the_monotonic_clock_and_can_be_set_wrong() -> None:
    clock, shifted = SystemClock(), SystemClock(shift_ms=180_000)
    now = clock.monotonic_ms()
    assert clock.utc_ms_at(now + 1000) - clock.utc_ms_at(now) == 1000
    assert abs(shifted.utc_ms_at(now) - clock.utc_ms_at(now) - 180_000) <= 2
    with pytest.raises(ValueError, match="no time zone"):
        parse_utc("2026-01-01T00:00:00.000")


def test_messages_survive_the_pipe() -> None:
    job = Job(trial=3, round=2, seed=9)
    assert decode_to_agent(encode(job)) == job
    progress = Progress(trial=3, phase="train", accuracy=0.5, operations=10**19)
    assert decode_to_primary(encode(progress)) == progress
    assert encode(job).count(b"\n") == 1


@given(st.binary(max_size=200))
def test_anything_else_is_a_message_error(line: bytes) -> None:
    for decode in (decode_to_agent, decode_to_primary, decode_from_trainer):
        with pytest.raises(MessageError):
            decode(line)


def test_an_offset_within_its_uncertainty_is_none() -> None:
    assert ClockOffset(3, 5).applied_ms == 0
    assert ClockOffset(-6, 5).applied_ms == -6


def view() -> RunView:
    replica = ReplicaView(0, "working", 2)
    replica.take(Progress(trial=1, phase="train", epoch=1, epochs=2, accuracy=0.9, operations=3 * 10**12))
    replica.take(Progress(trial=2, phase="evaluate", epoch=1, epochs=4, accuracy=0.5, operations=10**12))
    return RunView(100.0, [replica, *(ReplicaView(n) for n in range(1, 50))], elapsed_s=40.0)


def test_the_summary_adds_up_trials_and_keeps_the_best_accuracy() -> None:
    assert view().ops == 1e11
    assert summary(view()) == (
        "40s passed, 1m00s left | 1 replicas working, 0 trials done | best accuracy 0.9000 | 100.000 GOPS so far"
    )
    assert format_ops(194.53e15) == "194.530 POPS"
    assert summary(RunView(10.0, [ReplicaView(0)])) == "starting: 0 of 1 replicas answered"


def test_displays_write_to_their_stream() -> None:
    lines = io.StringIO()
    clock = ManualClock()
    plain = LineDisplay(lines, clock)
    plain.event("something")
    for _ in range(16):  # every second; a line every 15 s
        plain.refresh(view())
        clock.pause(1)
    plain.close()
    assert lines.getvalue().splitlines() == ["something", *[summary(view())] * 2]
    screen = io.StringIO()
    terminal = TerminalDisplay(screen)
    terminal.event("something")
    terminal.refresh(view())
    terminal.close()
    assert "something" in screen.getvalue()


def test_preflight_refuses_a_run_that_cannot_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load_config(overrides={"run.dataset": "digits"})
    preflight.check(digits, tmp_path / "new" / "deep")
    preflight.check(digits, tmp_path)
    with pytest.raises(UsageError, match="needs the directory of its files"):
        preflight.check(load_config(), tmp_path)
    run = HandMadeRun(tmp_path / "run")
    with pytest.raises(UsageError, match="holds another run"):
        preflight.check(digits, run.paths.root)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is not a directory"):
        preflight.check(digits, tmp_path / "file")
    with pytest.raises(UsageError, match="is not empty"):
        preflight.check(digits, tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(
        EnvironmentNotReadyError, match=r"(?s)TensorFlow is not installed.*too little disk space"
    ) as error:
        preflight.check(digits, tmp_path / "new")
    assert len(error.value.problems) == 2


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(EnvironmentNotReadyError, match="is not writable"):
        preflight.check(load_config(overrides={"run.dataset": "digits"}), tmp_path / "new")


def test_atomic_writes_leave_the_old_file_and_no_rest_when_they_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a" / "file.json"
    write_atomically(target, b"old")

    def fail(self: Path, other: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space"):
            write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in target.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("login", ("login",)),
        ("gpu[01-03,7],login", ("gpu01", "gpu02", "gpu03", "gpu7", "login")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
    ],
)
def test_host_lists(text: str, hosts: tuple[str, ...]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize("text", ["n[1-2", "n1-2]", "n[[1]]", "n[a-b]", "n[3-1]", "n[]", "n[1-99999999]"])
def test_broken_host_lists(text: str) -> None:
    with pytest.raises(UsageError, match="host list"):
        expand(text)
