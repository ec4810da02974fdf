"""Honest runs have no complaint: faulty, interrupted, with wrong clocks, they check and replay."""

import json
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.hand_made import aiperf
from tests.support.runs import agents, begin, count_epochs, history, nothing_is_left, report, wait_for

REPLICAS = 3
DURATION_S = 60
"""Of the first attempt; the next ones take twice as long, as an overloaded machine needs."""
SHIFTS_MS = (0, 120_000, -300_000)
FAULTS = {
    signal.SIGKILL: ("simulated.crash_trials=[1,4]", "simulated.fail_trials=[3]", "search.hpo_first_round=1"),
    signal.SIGINT: ("simulated.hang_trials=[1,2,3]", "replica.restarts=0"),
}
"""Settings of a run whose primary ends by a signal."""


def records_of(output: Path) -> dict[str, list[dict[str, Any]]]:
    """The bodies of each writer's records, read without the code that is tested."""
    files = sorted((output / "history").glob("*.jsonl"))
    return {file.stem: [json.loads(line)["data"] for line in file.read_text().splitlines()] for file in files}


def expect_all_witnessed(output: Path) -> None:
    """Every job is closed once; a writer's last epochs are unheard of only if something died."""
    files = records_of(output)
    of_primaries = [body for writer, bodies in files.items() if writer.startswith("primary-") for body in bodies]
    closed = Counter(body["trial"] for body in of_primaries if body["type"] == "trial_closed")
    assert closed == Counter(body["trial"] for body in of_primaries if body["type"] == "job_issued")
    heard = {(body["trial"], body["epoch"]) for body in of_primaries if body["type"] == "epoch_witnessed"}
    for replica in range(REPLICAS):
        starts = {
            int(writer[13:]): bodies for writer, bodies in files.items() if writer[:12] == f"replica-{replica:04d}"
        }
        for start, bodies in starts.items():
            epochs = [(body["trial"], body["epoch"]) for body in bodies if body["type"] == "epoch"]
            known = [epoch in heard for epoch in epochs]
            assert known == sorted(known, reverse=True)
            assert all(known) or start < max(starts)


def expect_no_complaint(output: Path) -> None:
    """`aiperf check` finds no damage, and every plan once more."""
    done = aiperf("check", output, "--replay", "all", "--format", "json", timeout_s=200)
    found = json.loads(done.stdout)
    assert (found["damages"], found["differences"]) == ([], [])
    started = history(output).count('"type":"trial_started"')
    assert found["replayed"] == {"checked": started, "equal": started}
    assert done.returncode == 0


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[signal.Signals, Future[None]]]:
    """The runs of all faults, side by side: they wait for their deadlines most of the time."""
    with ThreadPoolExecutor(len(FAULTS)) as pool:
        yield {number: pool.submit(play, tmp_path_factory.mktemp("honest") / "run", number) for number in FAULTS}


@pytest.mark.parametrize("number", FAULTS)
def test_an_honest_run_is_resumed_for_the_time_that_is_left_without_a_complaint(
    played: dict[signal.Signals, Future[None]], number: signal.Signals
) -> None:
    played[number].result()


def play(output: Path, number: signal.Signals, duration_s: int = DURATION_S) -> None:
    """A run with faults is interrupted, resumed, and checked."""
    # A training that hangs is given up long before the deadline, one that starts slowly is not.
    silence = f"replica.trial_silence={duration_s // 20}s"
    settings = (*FAULTS[number], silence, "simulated.epoch_seconds=1", f"simulated.clock_shifts_ms={list(SHIFTS_MS)}")
    words = [word for setting in settings for word in ("--set", setting)]
    with begin(output, "--replicas", REPLICAS, "--duration", f"{duration_s}s", *words) as process:

        def until(condition: Callable[[], object]) -> None:
            wait_for(lambda: condition() or process.poll() is not None)

        until(lambda: replicas_that_trained(output) == set(range(REPLICAS)))
        for agent in agents(output, 1)[:1]:
            agent.kill()
        until(lambda: '"type":"replica_lost"' in history(output))
        until(lambda: count_epochs(output) >= 8)
        process.send_signal(number)
        process.communicate(timeout=240)
    nothing_is_left(output, 60)
    if re.search(r'"type":"run_ended".*"deadline"', history(output)):
        assert duration_s < 4 * DURATION_S, "no machine is as slow"
        play(output.with_name(f"{output.name} again"), number, 2 * duration_s)
    else:
        expect_resumable(output, duration_s)


def expect_resumable(output: Path, duration_s: int) -> None:
    """An interrupted run goes on for the time that is left, and has no complaint then."""
    before = history(output)
    result = aiperf("resume", output)
    assert result.returncode == 0, result.stderr
    assert f"of {duration_s} s have passed" in result.stderr
    expect_one_run(output, duration_s, max(map(int, re.findall(r'"type":"job_issued","trial":(\d+)', before))))
    expect_one_clock(output)
    expect_dead_time(output)
    assert set(before.splitlines()) <= set(history(output).splitlines()), "what was written stays as it was"
    expect_all_witnessed(output)
    expect_no_complaint(output)
    assert aiperf("verify", output).stdout.splitlines() == [f"{output}: 0 problem(s)"]
    again = aiperf("resume", output)
    assert (again.returncode, "has reached its deadline" in again.stderr) == (2, True)


def expect_dead_time(output: Path) -> None:
    """Every replica was down until the resumption, and its phases sum to the run's duration."""
    found = report(output)
    for replica in found["replica_details"]:
        assert replica["phases_s"]["down"] > 0
        assert replica["phases_s"]["train"] > 0
        assert sum(replica["phases_s"].values()) == pytest.approx(found["duration_s"])


def replicas_that_trained(output: Path) -> set[int]:
    """The replicas with an epoch in their first file."""
    files = (output / "history").glob("replica-*-1.jsonl")
    return {int(file.stem[8:12]) for file in files if '"type":"epoch"' in file.read_text()}


def expect_one_run(output: Path, duration_s: int, last: int) -> None:
    """The clock is the first part's, trainings in progress are resumed, no operation is lost.

    `last` is the last trial before the interruption.
    """
    found = report(output)
    assert (found["ended"], found["duration_s"]) == ("deadline", duration_s)
    assert history(output).count('"type":"run_released"') == 1
    numbers = [trial["id"] for trial in found["trials"]]
    assert numbers == sorted(set(numbers))
    assert any(trial["epochs"] for trial in found["trials"] if trial["id"] > last)
    assert re.search(r'"type":"trial_started".*?"resumes":\d+', history(output))
    assert sum(trial["operations"] for trial in found["trials"]) == found["operations_total"]


def expect_one_clock(output: Path) -> None:
    """Every epoch and phase lies within the run on the primary's clock, whatever the node's own."""
    found, files = report(output), records_of(output)
    for body in (body for bodies in files.values() for body in bodies if body["type"] == "replica_ready"):
        assert body["clock_offset_ms"] == pytest.approx(SHIFTS_MS[body["replica"]], abs=500)
    for detail in found["replica_details"]:
        assert detail["operations"] > 0
        assert sum(detail["phases_s"].values()) == pytest.approx(found["duration_s"], abs=0.1)
    assert sum(trial["epochs"] for trial in found["trials"]) == epochs_within(output, files)


def epochs_within(output: Path, files: dict[str, list[dict[str, Any]]]) -> int:
    """The epochs that ended by the end of the run, on clocks that are put right here."""
    (end_ms,) = (b["end_ms"] for bodies in files.values() for b in bodies if b.get("reason") == "deadline")
    offsets = {
        b["writer"]: b["clock_offset_ms"] for bodies in files.values() for b in bodies if b["type"] == "replica_ready"
    }
    count = 0
    for writer, offset_ms in offsets.items():
        for line in (output / "history" / f"{writer}.jsonl").read_text().splitlines():
            record = json.loads(line)
            time_ms = round(datetime.fromisoformat(record["time"]).timestamp() * 1000) - offset_ms
            count += record["data"]["type"] == "epoch" and time_ms <= end_ms
    return count
