"""Every kind of fault once, in one run, and its books."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.faults.attacked import Attacked
from tests.faults.books import Books, close_books
from tests.faults.grounds import GROUNDS
from tests.faults.menu import MENU

SHORT = {
    "hangup": "terminal",
    "freeze": "agent",
    "clock": "boot time",
    "time": "time of day",
    "error": "errors",
    "disk": "full",
    "directory": "renamed",
    "kill": "agent",
    "warning": "USR1 to every process",
    "double": "at once",
}
"""The order, and the variant of each."""


@dataclass
class Ends:
    struck: dict[str, bool]
    flaws: dict[str, list[str]]
    """What was wrong after each kind."""
    missing: dict[str, str]
    books: Books


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """One run for all: its processes take longer to start than the faults take."""
    folder, draw = tmp_path_factory.mktemp("menu"), random.Random(1)
    menu = {kind: MENU.load(kind)() for kind in sorted(SHORT, key=lambda kind: kind != "disk")}
    missing = {kind: reason for kind, fault in menu.items() if (reason := fault.missing())}
    struck, flaws = dict[str, bool](), dict[str, list[str]]()
    with GROUNDS.load("local").open(folder) as place:
        run = Attacked(folder, place, replicas=2)
        try:
            for kind in [kind for kind in menu if kind not in missing]:
                menu[kind].prepare(run, draw)
            run.begin(3600)
            for kind in [kind for kind in SHORT if kind not in missing]:
                known = len(run.flaws)
                run.recovered()
                struck[kind] = menu[kind].strike(run, SHORT[kind], draw)
                run.go_on()
                flaws[kind] = run.flaws[known:]
            run.recovered()
            run.stop()
            yield Ends(struck, flaws, missing, close_books(run))
        finally:
            run.kill()
            for fault in menu.values():
                fault.clean()


def test_the_short_forms_are_of_the_whole_menu() -> None:
    assert set(SHORT) == set(MENU)


@pytest.mark.parametrize("kind", SHORT)
def test_a_fault_ends_as_it_must(ends: Ends, kind: str) -> None:
    if kind in ends.missing:
        pytest.skip(f"this needs {ends.missing[kind]}")
    assert ends.struck[kind]
    assert ends.flaws[kind] == []


def test_the_books_are_right_after_all_of_them(ends: Ends) -> None:
    assert ends.books.clean, ends.books.notes
