"""Rows of run directories: damaged at random, and with records that fit but cannot be true."""

import functools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from aiperf.run_directory.paths import RunPaths
from analysis.results.source import try_result
from tests.hardening.corpus.case import Case, complaint
from tests.hardening.readers.test_run_directories import ABSURD, damage, honest_run, look
from tests.support.folders import until_the_end
from tests.support.forging import Change, rewrite, unchain

DAMAGED = 760


@functools.cache
def _honest() -> Path:
    """A run that all processes of the corpus copy."""
    return honest_run(until_the_end("corpus-honest") / "run")


def damaged() -> Iterator[Case]:
    """One to four files cut, flipped, repeated, replaced or removed."""
    _honest()
    for number in range(DAMAGED):
        yield Case(f"damage {number}", functools.partial(_damaged, number))


def _damaged(number: int, folder: Path) -> str:
    rng = random.Random(number)
    root = shutil.copytree(_honest(), folder / "run")
    for _ in range(rng.randint(1, 4)):
        damage(rng.choice(sorted(file for file in root.glob("**/*") if file.is_file())), rng)
    return _answers(root)


def _answers(root: Path) -> str:
    result = try_result(root)
    return complaint(lambda: look(root)) + (result if isinstance(result, str) else "")


def absurd() -> Iterator[Case]:
    """Records of a liar: chain, witnesses and checksums fit."""
    _honest()
    for name, change in ABSURD:
        for chained in (True, False):
            yield Case(f"{name}{'' if chained else ', unchained'}", functools.partial(_absurd, change, chained))


def _absurd(change: Change, chained: bool, folder: Path) -> str:
    root = shutil.copytree(_honest(), folder / "run")
    if not chained:
        unchain(RunPaths(root))
    rewrite(RunPaths(root), change, keep_chain=chained)
    return _answers(root)
