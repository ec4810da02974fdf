"""Files of the history list, and a whole run directory, that are gone while a run works."""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hardening.storage.runs import Fault, Outcome, Shimmed, killed_at_the_end
from tests.support.needs import need
from tests.support.runs import history, nothing_is_left, wait_for, wait_for_another_epoch, wait_for_epochs

pytestmark = pytest.mark.timeout(1800)
"""The first test has the runs of all."""


def delete_history(run: Shimmed) -> None:
    while True:
        # A writer may restore its file meanwhile.
        with contextlib.suppress(OSError):
            return shutil.rmtree(run.output / "history")


def delete_a_file(run: Shimmed) -> None:
    (run.output / "history" / "replica-0001-1.jsonl").unlink()


def replace_a_file(run: Shimmed) -> None:
    """As a restored backup does: an older state of the file under its name."""
    file = run.output / "history" / "replica-0000-1.jsonl"
    copy = file.with_name("backup")
    copy.write_bytes(file.read_bytes()[:1000])
    copy.replace(file)


WRITTEN_AGAIN = "while the run works; it is written again, with all of its records"


def logs(run: Shimmed) -> str:
    return "".join(file.read_text() for file in (run.output / "logs").glob("*.log"))


HARMS = (delete_history, delete_a_file, replace_a_file)


@dataclass
class Ends:
    harmed: dict[str, tuple[Shimmed, Outcome]]
    moved: tuple[Shimmed, int, str]
    beyond: tuple[Shimmed, int, str, Outcome]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """All runs of this module at once: they mostly wait."""
    need("gcc")
    folder = tmp_path_factory.mktemp("lost")
    harmed = {harm.__name__: Shimmed(folder / harm.__name__, duration="30m") for harm in HARMS}
    moved = Shimmed(folder / "moved", duration="30m")
    refusing = folder / "refusing"
    beyond = Shimmed(
        folder / "beyond", Fault(code=errno.ENOSPC, while_=refusing), ("--set", "storage.patience=2s"), duration="30m"
    )
    with killed_at_the_end(*harmed.values(), moved, beyond):
        for run in (*harmed.values(), moved):
            run.start()
        for harm in HARMS:
            wait_for_epochs(harmed[harm.__name__].output, 3)
            harm(harmed[harm.__name__])
        wait_for_epochs(moved.output, 2)
        moved.output.rename(folder / "elsewhere")
        beyond.start()
        ended = {}
        for name, run in harmed.items():
            wait_for(lambda run=run: WRITTEN_AGAIN in logs(run))  # type: ignore[misc]
            for replica in range(run.replicas):
                wait_for_another_epoch(run.output, replica)
            ended[name] = (run, run.interrupt())
        wait_for_epochs(beyond.output, 2)
        refusing.touch()
        yield Ends(ended, (moved, *_end(moved)), _resumed(beyond, refusing))


def _end(run: Shimmed) -> tuple[int, str]:
    assert run.process is not None
    _, stderr = run.process.communicate()
    return run.process.returncode, stderr


def _resumed(run: Shimmed, refusing: Path) -> tuple[Shimmed, int, str, Outcome]:
    code, stderr = _end(run)
    refusing.unlink()
    run.start("resume", "--new-clock", str(run.output))
    wait_for_another_epoch(run.output)
    return run, code, stderr, run.interrupt()


@pytest.mark.parametrize("harm", [harm.__name__ for harm in HARMS])
def test_a_file_that_is_deleted_or_replaced_is_written_again(ends: Ends, harm: str) -> None:
    run, outcome = ends.harmed[harm]
    foreign = [flaw for flaw in outcome.flaws if ".foreign: does not belong to the run" in flaw]
    assert outcome.flaws == foreign, "what took its place is kept beside it, and named"
    assert len(foreign) == (harm == "replace_a_file")
    assert WRITTEN_AGAIN in logs(run)


def test_a_run_directory_that_is_moved_ends_the_run_with_the_cause(ends: Ends) -> None:
    run, code, stderr = ends.moved
    assert code == 3
    assert f"the run directory {run.output} is no longer there" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert stderr.count("FAILED") <= 2, "not trial after trial"
    nothing_is_left(run.output, timeout_s=60)


def test_beyond_patience_the_run_ends_with_its_cause_and_can_be_resumed(ends: Ends) -> None:
    run, code, stderr, resumed = ends.beyond
    assert code == 3
    assert "No space left on device" in stderr.splitlines()[-1]
    assert f"aiperf resume {run.output}" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert [flaw for flaw in resumed.flaws if not flaw.startswith("replica lost")] == []
    assert '"run_resumed"' in history(run.output)
