"""A SLURM job that a replica gives back."""

from pathlib import Path

import pytest

from aiperf.config.placement import JOB_OF_ITS_OWN
from aiperf.machine.job import give_job_back


@pytest.fixture
def cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a scancel on the path writes what it is asked for."""
    program, asked = tmp_path / "scancel", tmp_path / "asked"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    return asked


def test_a_job_of_its_own_is_cancelled(cancelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOB_OF_ITS_OWN, "1")
    give_job_back()
    assert cancelled.read_text() == "17\n"


def test_the_allocation_of_a_user_is_left_alone(cancelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOB_OF_ITS_OWN, raising=False)
    give_job_back()
    assert not cancelled.exists()


def test_a_node_without_slurms_commands_is_no_error(cancelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JOB_OF_ITS_OWN, "1")
    monkeypatch.setenv("PATH", "/nowhere")
    give_job_back()
    assert not cancelled.exists()
