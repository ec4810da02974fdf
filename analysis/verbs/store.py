"""The verb for stores of results: `aiperf store`."""

import argparse
import json
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aiperf.cli.command import Command, add_action, add_format
from aiperf.cli.console import open_console
from aiperf.cli.lines import say, say_json, warn
from aiperf.cli.tables import make_table
from aiperf.cli.units import count, si
from aiperf.errors import EXIT_DONE, EXIT_FAILED, UsageError
from analysis.results.result_store.facts import Facts, RunFacts, ScreeningFacts, try_facts
from analysis.results.result_store.store import add, is_store, open_store, read_store

STORE = Path("results.sqlite")

EXAMPLE = "aiperf store add runs/* screened --store results.sqlite"

IN_WORDS = {
    "added": "added",
    "changed": "brought up to date",
    "known": "there already",
    "kept": "not taken: the store has a better copy of the run",
}
"""The effect of adding a result, in words."""

DATE = len("2026-01-31 12:00")


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="add|list")
    to_add = add_action(actions, "add", "add results to a store; one that is there is brought up to date", EXAMPLE)
    to_add.add_argument(
        "results",
        nargs="+",
        type=Path,
        metavar="DIR|ARCHIVE|report.json",
        help="runs, screenings (folder or screen.json) and acceptances (JSON)",
    )
    listed = add_action(actions, "list", "list the results of a store", "aiperf store list --store results.sqlite")
    for action in (to_add, listed):
        action.add_argument(
            "--store", type=Path, default=STORE, metavar="FILE", help="the store, one file (default: %(default)s)"
        )
        add_format(action)


def _execute(arguments: argparse.Namespace) -> int:
    return _add(arguments) if arguments.action == "add" else _list(arguments)


def _add(arguments: argparse.Namespace) -> int:
    if stores := [path for path in arguments.results if is_store(path)]:
        raise UsageError(f"{stores[0]} is a store, not a result; name it as one: --store {shlex.quote(str(stores[0]))}")
    done: list[dict[str, str]] = []
    problems = []
    # As a whole path: a command of a timer may work in another folder than its author.
    store, is_new = arguments.store.absolute(), not arguments.store.exists()
    # Opened before anything is read: what cannot be written is known at once.
    with open_store(store, write=True) as connection:
        for path in arguments.results:
            found = try_facts(path.absolute())
            if isinstance(found, Facts):
                done.append({"origin": str(path), "identity": found.row.identity, "done": add(connection, found)})
            else:
                problems.append(found)
    if arguments.format == "json":
        say_json(json.dumps({"store": str(store), "new": is_new, "results": done, "problems": problems}, indent=2))
    else:
        for each in done:
            say(f"{each['origin']}: {IN_WORDS[each['done']]}")
        for problem in problems:
            warn(f"not read: {problem}")
        number = Counter(each["done"] for each in done)
        made = " (a new store)" if is_new else ""
        say(f"{store}{made}: {count(number['added'], 'result')} added, {number['changed']} brought up to date")
    return EXIT_FAILED if problems else EXIT_DONE


def _list(arguments: argparse.Namespace) -> int:
    rows = [*_listed(read_store(arguments.store))]
    if arguments.format == "json":
        say_json(json.dumps({"store": str(arguments.store), "results": rows}, indent=2))
        return EXIT_DONE
    table = make_table(str(arguments.store), *(rows[0] if rows else ["kind"]), dropped=("identity", "origin"))
    for row in rows:
        cells = {**row, "made": (row["made"] or "-")[:DATE].replace("T", " "), "identity": row["identity"][:12]}
        table.add_row(*map(str, cells.values()))
    open_console().print(table)
    return EXIT_DONE


def _listed(found: Iterable[Facts]) -> Iterable[dict[str, Any]]:
    """The results of a store, in a few words each."""
    for item in found:
        row = item.row
        if isinstance(row, RunFacts):
            words = {"kind": "run", "system": row.system, "status": row.status, "result": si(row.score_ops, "OPS")}
        elif isinstance(row, ScreeningFacts):
            bad = f"{row.bad_nodes} of {count(row.nodes, 'node')} bad"
            words = {"kind": "screening", "system": row.system, "status": "quick" if row.quick else "", "result": bad}
        else:
            status = "accepted" if row.accepted else "rejected"
            words = {"kind": "acceptance", "system": row.path, "status": status, "result": row.failed}
        yield {"made": row.made, **words, "origin": row.origin, "identity": row.identity}


STORE_VERB = Command(
    description="Keep the results of months in one file, and show what it has. aiperf trend --store compares them.",
    example=EXAMPLE,
    configure=_configure,
    execute=_execute,
    leaves=lambda arguments: "results that were added are kept; the same command adds the others",
)
