"""Storage that refuses when a run is resumed: waited for, and otherwise said with what to do."""

import errno
import tarfile
from pathlib import Path

import pytest

from aiperf.errors import EXIT_ENVIRONMENT, EXIT_USAGE
from tests.hardening.storage.runs import Fault, Shimmed
from tests.support.folders import GOLDEN
from tests.support.needs import need


def resume(folder: Path, fault: Fault) -> tuple[int, str]:
    """Resume a run whose deadline has passed, which is said after all of its records were read."""
    run = Shimmed(folder, fault)
    with tarfile.open(GOLDEN / "run-0.1.0.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "run-0.1.0").rename(run.output)
    _, stderr = run.start("resume", str(run.output)).communicate()
    assert run.process is not None
    assert run.calls[1] >= 1
    assert "Traceback" not in stderr
    return run.process.returncode, stderr


@pytest.mark.parametrize("part", ["run.json", "history"])
@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.ESTALE])
def test_a_run_is_read_when_its_storage_answers(tmp_path: Path, part: str, code: int) -> None:
    need("gcc")
    ended, said = resume(tmp_path, Fault("open", first=1, count=5, code=code, part=part))
    assert ended == EXIT_USAGE
    assert "with --new-clock it starts again" in said


def test_storage_that_refuses_for_longer_is_not_a_wrong_command(tmp_path: Path) -> None:
    need("gcc")
    ended, said = resume(tmp_path, Fault("open", first=1, count=10**6, code=errno.EIO, part="run.json"))
    assert ended == EXIT_ENVIRONMENT
    last = said.splitlines()[-1]
    assert f"{tmp_path}/run/run.json: cannot be read: Input/output error; resume the run when it can be" in last
