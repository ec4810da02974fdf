"""The live view and its summary."""

import errno
import io
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from aiperf.facts import Measured
from aiperf.run_directory.claim import Claim
from aiperf.wire.messages import Progress
from primary.display.state import Earlier, LiveReplica, LiveRun
from primary.display.terminal import KEPT_BYTES, LineDisplay, TerminalDisplay, open_display, picture, summary
from primary.resumption import prepare_resumption
from tests.support.hand_made import T0_MS, HandMadeRun, ManualClock


def view() -> LiveRun:
    replica = LiveReplica(0, "working", 2)
    replica.take(Progress(trial=1, phase="train", epoch=1, epochs=2, accuracy=0.9, operations=3 * 10**12))
    replica.take(Progress(trial=2, phase="evaluate", epoch=1, epochs=4, accuracy=0.5, operations=10**12))
    return LiveRun(100.0, [replica, *(LiveReplica(n) for n in range(1, 50))], elapsed_s=40.0)


def test_the_summary_adds_up_trials_and_keeps_the_best_accuracy() -> None:
    assert view().ops == 1e11
    assert summary(view()) == (
        "40 s passed, 1m00s left | 1 replica working, 0 trials done | best accuracy 0.9000 | 100.0 GOPS so far"
    )
    assert summary(LiveRun(10.0, [LiveReplica(0)])) == "starting: 0 of 1 replica answered"


def test_a_resumed_run_counts_what_was_done_before(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.duration": 100, "run.replicas": 2}).at(0).release(100, replicas=2)
    run.at(1).start_trial(1).at(9).epoch(1, 1, correct=324).end_trial(1).start_trial(2).at(12).epoch(2, 1, correct=180)
    with Claim.acquire(run.paths.claims, ManualClock()) as claim:
        earlier = prepare_resumption(run.paths, run.config, claim, False, T0_MS + 20_000).earlier
        anew = prepare_resumption(run.paths, run.config, claim, True, T0_MS + 20_000).earlier
    assert earlier == {0: Earlier(1, 0.9)}, "one is done, and one was in progress"
    assert anew == {}, "on a new clock nothing earlier counts"
    resumed = LiveRun.of(run.config.run, earlier)
    resumed.elapsed_s, resumed.resumed_s = 40.0, 30.0
    resumed.replicas[1].take(Progress(trial=3, phase="train", accuracy=0.5, operations=10**12))
    assert summary(resumed) == (
        "40 s passed, 1m00s left | 0 replicas working, 1 trial done | best accuracy 0.9000 | "
        "100.0 GOPS since the resumption"
    )


def drawn(run: LiveRun, colours: bool = False) -> str:
    screen = io.StringIO()
    Console(file=screen, width=100, force_terminal=colours, color_system="standard" if colours else None).print(
        picture(run)
    )
    return screen.getvalue()


def test_time_and_results_are_lines_of_their_own_above_the_table() -> None:
    bar, results, _, headings, *_ = [line.strip() for line in drawn(view()).splitlines()]
    assert bar.endswith("40.0 %, 1m00s left")
    assert results == "1 replica working, 0 trials done | best accuracy 0.9000 | 100.0 GOPS so far"
    assert "operations" in headings
    assert drawn(LiveRun(10.0, [LiveReplica(0)])).startswith("starting: 0 of 1 replica answered")


def test_a_scientific_run_shows_its_measures_next_to_their_targets() -> None:
    error = Measured(workload="cosmoflow", measure="mean_absolute_error", value=None, target=0.124, higher=False)
    run = LiveRun(100.0, [LiveReplica(0, "working"), LiveReplica(1, "working")], elapsed_s=40.0, suite="science")
    assert "best quality - |" in summary(run)
    run.replicas[0].take(Progress(trial=1, phase="build", epochs=9, measured=error))
    assert "best cosmoflow mean absolute error - (at most 0.124) |" in summary(run)
    for replica, value in enumerate((0.31, 0.29)):
        run.replicas[replica].take(Progress(trial=1 + replica, phase="train", measured=replace(error, value=value)))
    accuracy = Measured(workload="hepcnn", measure="accuracy", value=0.75, target=0.88, higher=True)
    for trial, value in enumerate((0.75, 0.7), 3):
        run.replicas[0].take(Progress(trial=trial, phase="train", measured=replace(accuracy, value=value)))
    assert "best cosmoflow mean absolute error 0.2900 (at most 0.124), hepcnn accuracy 0.7500 (at least 0.88) |" in (
        summary(run)
    )
    assert "best accuracy" not in drawn(run)
    shown = drawn(run)
    for words in ("workload", "hepcnn", "0.7000", "at least 0.88", "at most 0.124"):
        assert words in shown


def test_states_and_progress_have_colours_on_a_terminal_only() -> None:
    run = LiveRun(100.0, [LiveReplica(0, "working"), LiveReplica(1, "lost")], elapsed_s=140.0)
    assert "\x1b" not in drawn(run)
    shown = drawn(run, colours=True)
    assert "\x1b[32mworking" in shown
    assert "\x1b[1;31mlost" in shown
    assert "100.0 %, 0 s left" in shown, "a run that ends late does not pass its bar"


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


def test_what_a_full_disk_does_not_take_is_printed_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, write = 10, os.write

    def takes_what_fits(number: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(number, data[:room])
        room -= taken
        return taken

    monkeypatch.setattr(os, "write", takes_what_fits)
    file = tmp_path / "primary.out"
    with file.open("w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        display = open_display(ManualClock())
        display.event("replica 0 is lost")
        display.event("replica 1 waits for storage")
        assert file.read_text() == "replica 0 "
        room = 10_000_000
        display.close()
        lines = ["replica 0 is lost", "replica 1 waits for storage"]
        assert file.read_text().splitlines() == lines
        room = 0
        for number in range(KEPT_BYTES // 10):
            display.event(f"trial {number:04d}")
        room = 10_000_000
        display.event("the end")
    *_, last, end = file.read_text().splitlines()
    assert (last, end) == (f"trial {KEPT_BYTES // 10 - 1:04d}", "the end")
    assert len(file.read_bytes()) < KEPT_BYTES + 200
