"""Primaries in one run by force: only the last one's work counts, and the run is whole."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.recount import operations_total, read_lines
from tests.support.hand_made import aiperf
from tests.support.runs import begin, count_epochs, history, nothing_is_left, report, wait_for, wait_for_epochs


@contextmanager
def another_primary(output: Path, number: int, force: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """Resume a run, until the primary of this number has heard of epochs.

    By force, the claims are removed. The living primary publishes its own again, so that a second
    one that is slow to start may be refused: then it is let in once more.
    """
    words = [sys.executable, "-m", "aiperf", "resume", str(output), "--no-page"]
    file = output / f"history/primary-{number}.jsonl"

    def heard() -> bool:
        return file.exists() and file.read_text().count('"type":"epoch_witnessed"') > 1

    while True:
        if force:
            shutil.rmtree(output / "claims")
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_for(lambda process=process: heard() or process.poll() is not None)  # type: ignore[misc]
            if process.poll() is None or not force:
                assert heard()
                yield process
                return


def test_three_primaries_leave_a_run_that_counts_nothing_twice(tmp_path: Path) -> None:
    output = tmp_path / "run"
    with begin(output, "--replicas", 1, "--duration", "20m", "--set", "simulated.epoch_seconds=0.2") as first:
        wait_for_epochs(output, 2)
        with another_primary(output, 2, force=True) as second:
            second.kill()
        with another_primary(output, 3) as third:
            _, err = first.communicate(timeout=120)
            third.send_signal(signal.SIGINT)
    assert first.returncode == 3
    assert err.splitlines()[-1].startswith(f"aiperf: {output}: another primary has taken this run over: process ")
    assert history(output).count('"type":"run_ended"') == 1, "the loser records no end"
    nothing_is_left(output, 60)
    assert aiperf("report", output).returncode == 0
    found = report(output)
    assert any(notice.startswith("primary-1 was superseded") for notice in found["notices"])
    assert found["operations_total"] == operations_total(output)
    epochs = [(data["trial"], data["epoch"]) for _, data in read_lines(output) if data["type"] == "epoch"]
    assert len(epochs) == len(set(epochs))
    assert count_epochs(output) > len(epochs), "the first primary went on for a while"
    checked = aiperf("check", output, "--replay", "all", "--format", "json")
    document = json.loads(checked.stdout)
    assert (document["damages"], document["differences"]) == ([], [])
    assert document["replayed"]["equal"] == document["replayed"]["checked"] > 0
    assert document["notices"] == found["notices"]
    assert aiperf("verify", output).returncode == 0
