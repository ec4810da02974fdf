"""A disk that is full when a run begins: said in words, and the run can be started later."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT
from aiperf.storage.error_texts import why_not_written
from tests.hardening.storage.runs import SETTINGS, Fault, Shimmed
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.needs import need

PATIENCE = ("--set", "storage.patience=0s")

RUN_JSON_BYTES = 8 << 10
"""Whole pages of memory that run.json takes, and that nothing else finds room in."""

AT_THE_START = {
    "the directory": Fault("mkdir", code=errno.ENOSPC, count=10**6),
    "run.json": Fault("write", code=errno.ENOSPC, count=10**6, part="run.json"),
    "the claim": Fault("write", code=errno.ENOSPC, count=10**6, part="claims"),
    "the records": Fault("write", code=errno.ENOSPC, count=10**6, part="history"),
}


@pytest.mark.parametrize("what", AT_THE_START)
def test_a_run_that_cannot_begin_says_where_why_and_what_to_do(what: str, tmp_path: Path) -> None:
    need("gcc")
    fault = AT_THE_START[what]
    run = Shimmed(tmp_path, Fault(fault.kind, 1, fault.count, code=fault.code, part=fault.part), PATIENCE)
    stdout, stderr = run.start().communicate()
    assert run.process is not None
    assert run.process.returncode == EXIT_ENVIRONMENT
    last = stderr.splitlines()[-1]
    assert "Traceback" not in stderr + stdout
    assert str(run.output) in last
    assert "No space left on device" in last
    assert "MiB are free below" in last
    assert "make room there" in last
    if what in ("the claim", "the records"):
        assert f"aiperf resume {run.output}" in last


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk on which the directory of a run just fits."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], check=False)
    if made.returncode:
        pytest.skip("only root can mount a small file system")
    (folder / "filler").write_bytes(bytes((16 << 20) - RUN_JSON_BYTES))
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("words", [(), ("--detach",)], ids=["here", "detached"])
def test_it_begins_when_there_is_room(full_disk: Path, words: tuple[str, ...]) -> None:
    output = full_disk / "run"
    asked = (*SIMULATED, *SETTINGS, *PATIENCE, "--replicas", "1", "--duration", "6s", "--output", str(output), *words)
    refused = aiperf("run", *asked, "--set", "run.min_free_disk_gib=0")
    assert refused.returncode == EXIT_ENVIRONMENT
    said = refused.stderr.splitlines()[-1]
    assert "No space left on device (0.0 MiB are free below" in said
    assert f"aiperf resume {output}" in said
    (full_disk / "filler").unlink()
    begun = subprocess.run(
        [sys.executable, "-m", "aiperf", "resume", output, "--no-page"], capture_output=True, text=True, check=False
    )
    assert begun.returncode == EXIT_DONE, begun.stderr
    assert "AIPerf: score=" in begun.stdout


def test_the_words_name_the_folder_that_is_there(tmp_path: Path) -> None:
    full = why_not_written(tmp_path / "a/b", OSError(errno.ENOSPC, "No space left on device"))
    assert full.startswith(f"{tmp_path}/a/b cannot be written: No space left on device (")
    assert full.endswith(f"MiB are free below {tmp_path}); make room there")
    assert why_not_written(tmp_path, OSError("odd")) == f"{tmp_path} cannot be written: odd"
    assert "quota" in why_not_written(tmp_path, OSError(errno.EDQUOT, "Disk quota exceeded"))
