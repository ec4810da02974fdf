"""The soak: many replicas, a fault every minute, flat descriptors and memory.

python -m tests.faults.soak --replicas 50 --minutes 30 --every 60

Fails if the descriptors of the primary or of an agent grow, if the primary grows by more than 1 MB
an hour after warming up, or if the books are wrong. The primary survives the faults of a soak, so
that one process is watched from the start to the end. Agents hold the ledger of the run: their
growth is reported, and not judged.
"""

import argparse
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from scipy.stats import theilslopes

from tests.faults.attacked import Attacked
from tests.faults.books import Books, close_books
from tests.faults.campaign import available, say
from tests.faults.grounds import GROUNDS
from tests.faults.menu import MENU, Fault

SAMPLE_S = 5.0
WARM_UP = 0.25
"""Part of the samples in which memory is still filled for the first time."""

LEAST_SAMPLES = 40
"""After warming up; a slope of fewer says nothing."""

MOST_MB_PER_HOUR = 1.0
FATAL = frozenset({("kill", "primary"), ("kill", "all"), ("kill", "manager"), ("double", "at once")})
"""Faults that the primary does not survive."""


@dataclass(frozen=True)
class Sample:
    """A process at one moment."""

    seconds: float
    descriptors: int
    resident_bytes: int


@dataclass
class Growth:
    """Samples of processes, and the judgement of them."""

    primary: list[Sample] = field(default_factory=list)
    agents: dict[int, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    """By process id: a restarted agent is another one."""

    def primary_mb_per_hour(self) -> float:
        """The Theil-Sen slope of the primary's resident memory: robust against outliers."""
        return slope(warm(self.primary), lambda sample: sample.resident_bytes) * 3600 / 1e6

    def agent_mb_per_hour(self) -> float:
        """The median over the agents that lived long enough; 0 if there is none."""
        slopes = [slope(warm(samples), lambda sample: sample.resident_bytes) for samples in self._long_lived()]
        return statistics.median(slopes) * 3600 / 1e6 if slopes else 0.0

    def _long_lived(self) -> list[list[Sample]]:
        return [samples for samples in self.agents.values() if len(warm(samples)) >= LEAST_SAMPLES]

    def flaws(self) -> list[str]:
        """What is not flat."""
        if len(warm(self.primary)) < LEAST_SAMPLES:
            return [f"{len(self.primary)} samples of the primary are too few to judge"]
        found = []
        if (more := more_descriptors(self.primary)) >= 1:
            found.append(f"the primary has {more:.1f} more descriptors than at the start")
        worst = max(map(more_descriptors, self._long_lived()), default=0.0)
        if worst >= 1:
            found.append(f"an agent has {worst:.1f} more descriptors than at its start")
        if (rate := self.primary_mb_per_hour()) > MOST_MB_PER_HOUR:
            found.append(f"the primary grows by {rate:.2f} MB an hour")
        return found


def warm(samples: list[Sample]) -> list[Sample]:
    """Those after warming up."""
    return samples[int(len(samples) * WARM_UP) :]


def slope(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    """The Theil-Sen slope of a value, per second."""
    if len(samples) < 2:
        return 0.0
    return float(theilslopes([value(sample) for sample in samples], [sample.seconds for sample in samples]).slope)


def more_descriptors(samples: list[Sample]) -> float:
    """Descriptors at the end that were not there after warming up, by the slope."""
    kept = warm(samples)
    return slope(kept, lambda sample: sample.descriptors) * (kept[-1].seconds - kept[0].seconds)


class Sampler(threading.Thread):
    """Takes samples of a run until it is told to stop."""

    def __init__(self, run: Attacked) -> None:
        super().__init__(daemon=True)
        self.growth = Growth()
        self._run, self._end = run, threading.Event()
        self._primary = run.command_pids[-1]

    def run(self) -> None:
        """Sample; the primary and agents of this moment."""
        while not self._end.wait(SAMPLE_S):
            kinds = self._run.kinds()
            for process in kinds["primary"]:
                if process.pid == self._primary and (sample := sample_of(process)):
                    self.growth.primary.append(sample)
            for process in kinds["agent"]:
                if sample := sample_of(process):
                    self.growth.agents[process.pid].append(sample)

    def stop(self) -> Growth:
        """The samples."""
        self._end.set()
        self.join()
        return self.growth


def sample_of(process: psutil.Process) -> Sample | None:
    """A sample; None if the process has ended."""
    try:
        return Sample(time.monotonic(), process.num_fds(), process.memory_info().rss)
    except psutil.NoSuchProcess:
        return None


@dataclass
class Soak:
    """A run of many replicas, and what came of it."""

    replicas: int
    minutes: float
    every_s: float
    seed: int = 1
    epoch_s: float = 5.0
    struck: Counter[str] = field(default_factory=Counter)

    def last(self, folder: Path) -> tuple[Growth, Books]:
        """Begin the run, strike now and then, and close the books after its deadline."""
        draw = random.Random(self.seed)
        _, names = available(["local"], [*MENU])
        menu = {name: MENU.load(name)() for name in sorted(names, key=lambda name: name != "disk")}
        with GROUNDS.load("local").open(folder) as place:
            run = Attacked(folder, place, replicas=self.replicas)
            try:
                for fault in menu.values():
                    fault.prepare(run, draw)
                run.begin(
                    round(self.minutes * 60),
                    f"simulated.epoch_seconds={self.epoch_s}",
                    "run.replica_silence=60s",
                    "replica.trial_silence=30s",
                    "run.start_timeout=30m",
                )
                run.recovered()
                growth = self._attack(run, menu, draw)
                return growth, close_books(run)
            finally:
                run.kill()
                for fault in menu.values():
                    fault.clean()

    def _attack(self, run: Attacked, menu: dict[str, Fault], draw: random.Random) -> Growth:
        sampler = Sampler(run)
        sampler.start()
        choices = [(kind, variant) for kind in sorted(menu) for variant in MENU.load(kind).variants]
        survivable = [choice for choice in choices if choice not in FATAL]
        while not run.over and run.alive:
            kind, variant = draw.choice(survivable)
            due = time.monotonic() + self.every_s
            if menu[kind].strike(run, variant, draw):
                self.struck[f"{kind}: {variant}"] += 1
            while time.monotonic() < due and run.alive:
                time.sleep(0.5)
        growth = sampler.stop()
        run.finish()
        return growth


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=60, help="seconds from one fault to the next")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epoch-seconds", type=float, default=5.0)
    return parser.parse_args(words)


def main() -> int:
    """Soak; 1 if anything grows, or the books are wrong."""
    options = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left then, either
    soak = Soak(options.replicas, options.minutes, options.every, options.seed, options.epoch_seconds)
    with tempfile.TemporaryDirectory(prefix="aiperf-soak-") as folder:
        growth, books = soak.last(Path(folder))
    flaws = growth.flaws()
    say("\n  ".join((f"struck: {dict(soak.struck)}", *books.notes, *flaws)))
    first, last = growth.primary[:1], growth.primary[-1:]
    say(f"  the primary: {first} {last}; agents: {growth.agent_mb_per_hour():+.2f} MB an hour")
    print(
        f"soak: replicas={soak.replicas} faults={soak.struck.total()} samples={len(growth.primary)} "
        f"primary_mb_per_hour={growth.primary_mb_per_hour():+.2f} "
        f"descriptors={more_descriptors(growth.primary):+.1f} grown={len(flaws)} {books}"
    )
    return 0 if books.clean and not flaws else 1


if __name__ == "__main__":
    sys.exit(main())
