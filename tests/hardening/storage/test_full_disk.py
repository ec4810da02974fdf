"""A disk that is really full for a while, and then has space again."""

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.screening.messages import READY, STORAGE, ScreenRequest, read_row, write_request
from tests.hardening.storage.runs import SETTINGS, Outcome
from tests.support.hand_made import SIMULATED
from tests.support.runs import raw_records, wait_for, wait_for_another_epoch, wait_for_epochs

SIZE = "32m"

WAITS = re.compile(r"(the primary|replica \d) waits for storage")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=False)
    if made.returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    size = 1 << 20
    while size:
        try:
            if os.write(descriptor, bytes(size)) < size:
                size //= 2
        except OSError:
            size //= 2
    os.close(descriptor)


def test_a_screening_names_what_a_full_disk_does_not_do_and_leaves_nothing(small_disk: Path) -> None:
    fill(small_disk / "filler")
    request = ScreenRequest(config=load_config(overrides={"run.dataset": "digits"}), folder=str(small_disk), quick=True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "replica.measure.screen.storage", "--replica", "0"],
        input=write_request(request),
        capture_output=True,
        check=True,
    )
    ready, *rows = [read_row(line) for line in done.stdout.splitlines()]
    assert (ready.measure, rows[0].device) == (READY, STORAGE)
    problems = {row.measure: row.problem or "" for row in rows if row.value is None}
    assert problems.keys() == {"record", "run_write", "run_read", "run_opens"}, rows
    assert all(os.strerror(errno.ENOSPC) in problems[measure] for measure in ("record", "run_write"))
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_a_full_disk_costs_no_replica_and_no_epoch(small_disk: Path, tmp_path: Path) -> None:
    output, shown = small_disk / "run", tmp_path / "stderr"
    words = ("--replicas", "2", "--duration", "30m", "--output", str(output), "--set", "run.min_free_disk_gib=0")
    with shown.open("w") as stderr:
        run = subprocess.Popen(
            [sys.executable, "-P", "-m", "aiperf", "run", *SIMULATED, *words, *SETTINGS],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    wait_for_epochs(output, 2)
    fill(small_disk / "filler")
    wait_for(lambda: WAITS.search(shown.read_text()))
    waiting = set(WAITS.findall(shown.read_text()))
    before = len(raw_records(output))
    (small_disk / "filler").unlink()
    wait_for(lambda: all(f"{name} can write again" in shown.read_text() for name in waiting))
    wait_for_another_epoch(output)
    run.send_signal(signal.SIGINT)
    stdout, _ = run.communicate()
    outcome = replace(Outcome.of(output, run.returncode, stdout, shown.read_text()), interrupted=True)
    assert outcome.flaws == []
    assert stdout.splitlines()[-1].startswith("AIPerf: score=")
    assert len(raw_records(output)) > before
