"""Calls that fail now and then, and all that fail for a while, in runs of two replicas.

One call after the other: `python -m tests.hardening.storage.sweep`.
"""

import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.hardening.storage.runs import Fault, Outcome, Shimmed, killed_at_the_end
from tests.support.needs import need
from tests.support.runs import wait_for, wait_for_another_epoch, wait_for_epochs

SCATTERED = (
    Fault(first=12, every=7, code=errno.EIO),
    Fault(first=15, every=9, code=errno.ESTALE),
    Fault("write", first=5, every=5, short=True),
    Fault("look", first=4, every=3, code=errno.ESTALE),
)
"""With `first` of its own each."""

LASTING = {
    "full": Fault(code=errno.ENOSPC),
    "slow-server": Fault(code=errno.ETIMEDOUT),
    "expired-ticket": Fault(code=errno.EACCES),
}

ATTEMPTS = 8
"""Refused calls of each replica's file until a lasting error is mended: over five seconds."""

pytestmark = pytest.mark.timeout(1800)
"""The first test has the runs of all, and those of a second attempt."""


def switch(folder: Path) -> Path:
    return folder / "refusing"


def refused(run: Shimmed, replica: int) -> int:
    """Calls that have got an error, on the file of a replica.

    Or on checkpoints: a replica whose ranks wait to write theirs has nothing to record.
    """
    failed = [call.path for call in run.log if call.failed]
    own = sum(f"replica-{replica:04d}-1.jsonl" in path for path in failed)
    return max(own, sum("checkpoint" in path for path in failed))


FAULTS, SECONDS = 10, 12


def finish_with_faults(run: Shimmed, least: int = FAULTS) -> tuple[Fault, tuple[Outcome, int]]:
    """The end of a run, repeated with more time if a busy machine had no epoch or few faults."""
    outcome, seconds = run.finish(), int(run.duration.removesuffix("s"))
    while (not outcome.epochs or run.calls[1] < least) and seconds < 200:
        seconds *= 2
        run = replace(run, folder=run.folder.with_name(f"{run.folder.name}-again"), duration=f"{seconds}s")
        run.start()
        outcome = run.finish()
    return run.fault, (outcome, run.calls[1])


def works_again(run: Shimmed) -> bool:
    """True if each replica has written into the same file since the last call that failed."""
    calls = run.log
    mended = max(number for number, call in enumerate(calls) if call.failed)
    since = [call.path for call in calls[mended + 1 :]]
    names = (f"replica-{replica:04d}-1.jsonl" for replica in range(run.replicas))
    return all(any(name in path for path in since) for name in names)


@dataclass
class Ends:
    scattered: dict[Fault, tuple[Outcome, int]]
    """With the number of calls that got the fault."""
    lasting: dict[str, tuple[Shimmed, Outcome]]
    plain: Shimmed
    hanging: Outcome


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """All runs of this module at once: they mostly wait.

    But for the one whose replicas may be lost by mere silence: it begins when the others have.
    """
    need("gcc")
    folder = tmp_path_factory.mktemp("short")
    scattered = [Shimmed(folder / str(fault.first), fault, duration=f"{SECONDS}s") for fault in SCATTERED]
    lasting = {
        name: Shimmed(folder / name, Fault(code=fault.code, while_=switch(folder / name)), duration="30m")
        for name, fault in LASTING.items()
    }
    plain = Shimmed(folder / "plain", duration="8s")
    hang = Fault("write", first=20, delay_ms=15_000, part="history/replica-0000-1")
    hanging = Shimmed(folder / "hanging", hang, ("--set", "run.replica_silence=10s"), duration="22s")
    with killed_at_the_end(*lasting.values(), plain, *scattered, hanging):
        for run in (*lasting.values(), plain, *scattered):
            run.start()
        for name, run in lasting.items():
            wait_for_epochs(run.output, 2)
            switch(folder / name).touch()
        for name, run in lasting.items():
            for replica in range(run.replicas):
                wait_for(lambda run=run, replica=replica: refused(run, replica) >= ATTEMPTS)  # type: ignore[misc]
            switch(folder / name).unlink()
        hanging.start()
        mended = {}
        for name, run in lasting.items():
            wait_for(lambda run=run: works_again(run))  # type: ignore[misc]
            for replica in range(run.replicas):
                wait_for_another_epoch(run.output, replica)
            mended[name] = (run, run.interrupt())
        plain.finish()
        yield Ends(
            dict(map(finish_with_faults, scattered)),
            mended,
            plain,
            finish_with_faults(hanging, least=0)[1][0],
        )


@pytest.mark.parametrize("fault", SCATTERED, ids=str)
def test_calls_that_fail_now_and_then_change_nothing(ends: Ends, fault: Fault) -> None:
    outcome, faults = ends.scattered[fault]
    assert outcome.flaws == []
    assert faults >= FAULTS


@pytest.mark.parametrize("name", LASTING)
def test_storage_that_refuses_for_a_while_costs_no_replica_and_no_epoch(ends: Ends, name: str) -> None:
    run, outcome = ends.lasting[name]
    assert outcome.flaws == []
    assert "waits for storage" in outcome.stderr
    assert "can write again" in outcome.stderr
    assert works_again(run)


def test_a_call_that_hangs_stops_no_heartbeat(ends: Ends) -> None:
    assert ends.hanging.flaws == []


def test_a_record_costs_at_most_one_write_and_one_fsync(ends: Ends) -> None:
    calls = Counter((call.kind, call.path) for call in ends.plain.log)
    files = sorted((ends.plain.output / "history").iterdir())
    assert len(files) == 3
    for file in files:
        lines = len(file.read_bytes().splitlines())
        writes, syncs = (calls[kind, str(file)] for kind in ("write", "fsync"))
        assert 0 < writes == syncs <= lines
