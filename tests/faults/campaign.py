"""The fault campaign: drawn faults in real runs, after which the books are checked.

python -m tests.faults.campaign --faults 100 [--seed 1] [--under local,ssh] [--menu kill,freeze]
                                [--suite automl,science,hybrid,hybrid-torch]

The last line is `faults: faults=<n> lost=<n> doubled=<n> leftovers=<n> wrong_status=<n>
double_claims=<n>`, or with `--format json` a document with the counts of each kind of fault under
each manager and launcher; all but the first must be 0. A run's draws depend on its seed, which is
printed: `--seed` with `--under` repeats them. Runs of several suites take turns.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.attacked import Attacked
from tests.faults.books import Books, close_books
from tests.faults.grounds import GROUNDS, Place
from tests.faults.loads import LOADS
from tests.faults.menu import MENU, Fault

FAULTS_PER_RUN = 20
START_S = {"local": 15, "ssh": 20, "ray": 30, "slurm": 30, "nni": 45}
KERAS_FACTOR = 4
LONG_S = 3600
ONLY_IF_NAMED = frozenset({"ray", "slurm", "nni"})
"""Grounds that take more of a machine: see docs/faults.md."""


@dataclass
class Session:
    """The draws of one run, on an open ground."""

    place: Place
    seed: int
    trainer: str = "simulated"
    menu: Sequence[str] = tuple(MENU)
    suite: str = "automl"
    struck: Counter[str] = field(default_factory=Counter)
    """Faults that happened, by kind and variant."""

    def attack(self, folder: Path, faults: int, duration_s: int) -> Books:
        """Begin a run, strike until enough has happened or it is over, and close its books."""
        draw = random.Random(self.seed)
        load = LOADS[self.suite]
        run = Attacked(folder, self.place, load.trainer or self.trainer, load.replicas)
        run.load = load
        menu = {name: MENU.load(name)() for name in self.menu}
        try:
            for fault in self._by_place(menu):
                fault.prepare(run, draw)
            run.begin(duration_s, faults=faults)
            run.recovered()
            while self.struck.total() < faults and not run.over:
                self.strike(run, menu, draw)
            run.finish()
            return close_books(run)
        finally:
            run.kill()
            for fault in menu.values():
                fault.clean()

    def _by_place(self, menu: dict[str, Fault]) -> list[Fault]:
        """The disk first: others need to know where the run will be."""
        return [menu[name] for name in sorted(menu, key=lambda name: name != "disk")]

    def strike(self, run: Attacked, menu: dict[str, Fault], draw: random.Random) -> None:
        """One fault. The next one waits for the recovery as often as not."""
        kind = draw.choice(sorted(menu))
        variant = draw.choice(menu[kind].variants)
        run.go_on()
        flaws = len(run.flaws)
        if menu[kind].strike(run, variant, draw):
            self.struck[f"{kind}: {variant}"] += 1
        run.go_on()
        if draw.random() < 0.5:
            run.recovered()
        else:
            time.sleep(draw.uniform(0, 1.5))
        run.flaws[flaws:] = [f"after {kind}: {variant}: {flaw}" for flaw in run.flaws[flaws:]]


def some_of(registered: Iterable[str]) -> Callable[[str], list[str]]:
    """A reader of names with commas between them, each of which must be one of these."""
    known = list(registered)

    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return names

    return read


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trainer", choices=("simulated", "keras"), default="simulated")
    parser.add_argument("--under", type=some_of(GROUNDS), default=[x for x in GROUNDS if x not in ONLY_IF_NAMED])
    parser.add_argument("--menu", type=some_of(MENU), default=[*MENU])
    parser.add_argument(
        "--suite", type=some_of(LOADS), default=["automl"], help=f"of {', '.join(LOADS)}; only automl under nni"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser.parse_args(words)


def say(text: str) -> None:
    """Print for a person, next to the result."""
    print(text, file=sys.stderr, flush=True)


def available(under: Sequence[str], menu: Sequence[str]) -> tuple[list[str], list[str]]:
    """What of these the machine has; what is missing is said loudly."""
    lacks = {name: GROUNDS.load(name).missing() for name in under}
    lacks |= {name: MENU.load(name)().missing() for name in menu}
    for name, reason in lacks.items():
        if reason:
            say(f"************ NOT DONE: {name}: this needs {reason} ************")
    return [name for name in under if not lacks[name]], [name for name in menu if not lacks[name]]


def campaign(arguments: argparse.Namespace) -> tuple[dict[str, Counter[str]], Books]:
    """As many runs as it takes, an equal part of the faults under each ground."""
    total, done = Books(), dict[str, Counter[str]]()
    under, menu = available(arguments.under, arguments.menu)
    for number, name in enumerate(under):
        wanted = arguments.faults * (number + 1) // len(under) - arguments.faults * number // len(under)
        done[name] = Counter()
        with (
            tempfile.TemporaryDirectory(prefix="aiperf-faults-") as folder,
            GROUNDS.load(name).open(Path(folder) / "ground") as place,
        ):
            seed = arguments.seed
            while done[name].total() < wanted:
                suite = arguments.suite[seed % len(arguments.suite)] if name != "nni" else "automl"
                session = Session(place, seed, arguments.trainer, menu, suite)
                total.add(one_run(name, session, Path(folder), min(FAULTS_PER_RUN, wanted - done[name].total())))
                done[name] += session.struck
                seed += 1
    return done, total


def one_run(name: str, session: Session, folder: Path, faults: int) -> Books:
    """One run with its books, told."""
    slowness = KERAS_FACTOR if session.trainer == "keras" else 1
    duration_s = round(slowness * (START_S[name] + faults * GROUNDS.load(name).pace))
    if "completed" in LOADS[session.suite].ends:
        duration_s = LONG_S  # it ends by itself
    say(f"under {name}, seed {session.seed}, {session.suite}: {faults} faults")
    with tempfile.TemporaryDirectory(dir=folder, prefix="run-") as own:
        books = session.attack(Path(own), faults, duration_s)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(session.struck.items()))
    say("\n  ".join((f"  {books}", f"struck: {said}", *books.notes)))
    return books


def main() -> int:
    """Run a campaign; 1 if anything was lost, doubled, left or wrong."""
    arguments = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left then, either
    done, total = campaign(arguments)
    faults = sum(counts.total() for counts in done.values())
    if arguments.format == "json":
        print(json.dumps({"faults": faults, **total.counts(), "under": done, "notes": total.notes}))
    else:
        print(f"faults: faults={faults} {total}")
    return 0 if total.clean and faults else 1


if __name__ == "__main__":
    sys.exit(main())
