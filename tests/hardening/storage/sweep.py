"""Every call of a short run fails once: `python -m tests.hardening.storage.sweep`.

    python -m tests.hardening.storage.sweep [--kinds write,fsync] [--step 1] [--at 0] [--jobs 2]
    python -m tests.hardening.storage.sweep --every 100

Each run is of two replicas with the simulated trainer. The n-th call of a kind gets an error (the
errors take turns; every fifth write is cut short instead); each run must end as one without faults
does. With --step 10 every tenth call is taken, from number --at on. With --every 100 it takes a
hundred runs: the first fails calls 1, 101, 201, ..., the second calls 2, 102, 202, ..., of any
kind.
"""

import argparse
import errno
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.hardening.storage.runs import KINDS, Fault, Outcome, Shimmed

ERRORS = (
    errno.EIO,
    errno.ENOSPC,
    errno.ETIMEDOUT,
    errno.ESTALE,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EAGAIN,
)


DURATION = "8s"
ATTEMPTS = 3


def calls_of(folder: Path) -> Counter[str]:
    """The calls of a run without faults, by kind."""
    run = Shimmed(folder, duration=DURATION)
    run.start()
    outcome = run.finish()
    assert not outcome.flaws, outcome.flaws
    return Counter(call.kind for call in run.log)


def faults(calls: Counter[str], kinds: tuple[str, ...], step: int, at: int) -> Iterator[Fault]:
    """A fault for every `step`-th call."""
    for kind in kinds:
        for number in range(1 + at % step, calls[kind] + 1, step):
            short = kind == "write" and number % 5 == 0
            yield Fault(kind, first=number, code=ERRORS[number % len(ERRORS)], short=short)


def combed(every: int) -> Iterator[Fault]:
    """Faults of as many runs, in one of which each call fails.

    Further ones cut writes short, or fail where the run looks for files and into folders.
    """
    for number in range(1, every + 1):
        yield Fault(first=number, every=every, code=ERRORS[number % len(ERRORS)])
    for number in range(1, every + 1, 5):
        yield Fault("write", first=number, every=every, short=True)
        yield Fault("look", first=number, every=every, code=ERRORS[number % len(ERRORS)])


def try_fault(folder: Path, fault: Fault) -> tuple[Fault, int, Outcome]:
    """A run with a fault; how many calls got it.

    A run without an epoch is repeated: the machine was too busy for it to say anything.
    """
    for attempt in range(ATTEMPTS):
        run = Shimmed(folder / str(attempt), fault, duration=DURATION)
        run.start()
        outcome = run.finish()
        if outcome.epochs:
            break
    return fault, run.calls[1], outcome


@dataclass
class Tally:
    """The figures of a sweep."""

    runs: int = 0
    hit: int = 0
    epochs: int = 0
    lost: int = 0
    doubled: int = 0
    flawed: int = 0

    def add(self, times: int, outcome: Outcome) -> None:
        self.runs += 1
        self.hit += bool(times)
        self.epochs += outcome.epochs
        self.lost += len(outcome.lost)
        self.doubled += len(outcome.doubled)
        self.flawed += bool(outcome.flaws)

    def __str__(self) -> str:
        return " ".join(f"{name}={number}" for name, number in vars(self).items())


def main() -> int:
    """Sweep; 1 if a run was not as one without faults."""
    parser = argparse.ArgumentParser(description="Fail every call of a short run once.")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--every", type=int, default=0, help="fail every so many-th call of a run")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aiperf-sweep-") as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        calls = calls_of(Path(folder) / "calls")
        one_each = faults(calls, tuple(arguments.kinds.split(",")), arguments.step, arguments.at)
        planned = list(combed(arguments.every) if arguments.every else one_each)
        print(f"calls: {dict(calls)}; runs: {len(planned)}", flush=True)  # noqa: T201
        tally = Tally()
        numbered = ((Path(folder) / str(number), fault) for number, fault in enumerate(planned))
        for fault, times, outcome in pool.map(lambda item: try_fault(*item), numbered):
            tally.add(times, outcome)
            if outcome.flaws:
                print(f"{fault}: {'; '.join(outcome.flaws)}", flush=True)  # noqa: T201
            if tally.runs % 10 == 0:
                print(f"so far: {tally}", flush=True)  # noqa: T201
    print(f"sweep: {tally}")  # noqa: T201
    return 1 if tally.flawed else 0


if __name__ == "__main__":
    sys.exit(main())
