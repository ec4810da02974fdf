"""Everything that AIPerf starts works in a folder full of files that are named like modules."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hand_made import SIMULATED
from tests.support.hostile import ENTRY_POINT, environment, fill
from tests.support.runs import report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "hostile")


def call(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, as a user does."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_the_files_of_the_folder_do_shadow_modules(folder: Path) -> None:
    shadowed = call(folder, sys.executable, "-m", "aiperf", "--version")
    assert "is shadowed" in shadowed.stderr
    assert call(folder, ENTRY_POINT, "--version").returncode == 0


def test_a_whole_run_and_its_report(folder: Path) -> None:
    for seconds in (6, 24, 96):  # as long as a busy machine needs for a trial of each replica
        words = ("--replicas", 2, "--duration", f"{seconds}s", "--output", f"runs/{seconds}")
        result = call(folder, ENTRY_POINT, "run", *SIMULATED, *words)
        found = report(folder / "runs" / str(seconds))
        if result.returncode == 0 and all(detail["trials"] > 0 for detail in found["replica_details"]):
            break
    assert result.returncode == 0, result.stderr
    assert found["ended"] == "deadline"
    assert all(detail["trials"] > 0 for detail in found["replica_details"])
    assert {trial["state"] for trial in found["trials"]} <= {"completed", "stopped", "early_stop"}
    again = call(folder, ENTRY_POINT, "report", f"runs/{seconds}")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == result.stdout.splitlines()[-1]


def test_the_command_of_a_job_script(folder: Path) -> None:
    words = ("--duration", "4s", "--output", "runs/job", "--file", "job.sh")
    made = call(folder, ENTRY_POINT, "slurm", "script", *SIMULATED, *words)
    assert made.returncode == 0, made.stderr
    script = folder / "job.sh"
    # The shell ignores the lines for sbatch; without a cluster, replicas run on this machine.
    text, replaced = re.subn("--launcher slurm", "--launcher local", script.read_text())
    assert replaced == 1
    script.write_text(text)
    result = call(folder, "bash", script)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1].startswith("AIPerf: score=")
    assert report(folder / "runs" / "job")["ended"] == "deadline"
