"""The micro suite's results of a run's nodes: files whose hashes the primary has recorded."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiperf.errors import RunDirectoryError
from aiperf.history.chain import hash_of
from aiperf.history.damage import Damage
from aiperf.history.ledger import Ledger
from aiperf.outside.reading import SMALL, read_bounded
from aiperf.run_directory.measured import NodeResult, read_node
from aiperf.run_directory.paths import RunPaths, measured_file

_NAME = re.compile(r"[\w.-]{1,255}\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class MeasuredNodes:
    """The results that are as recorded, and the damages of the others."""

    results: tuple[NodeResult, ...] = ()
    damages: tuple[Damage, ...] = ()


def read_measured(paths: RunPaths, ledger: Ledger) -> MeasuredNodes:
    """Read the file of every node that the primary has recorded as measured."""
    results: list[NodeResult] = []
    damages: list[Damage] = []
    for name, digest in sorted(ledger.measured.items()):
        damage = _damage(paths, name, digest)
        if damage is not None:
            damages.append(damage)
            continue
        try:
            results.append(read_node(measured_file(paths, name)))
        except RunDirectoryError as error:
            problem = str(error).removeprefix(f"{measured_file(paths, name)}: ")
            damages.append(Damage(f"micro/{name}", None, "record", problem))
    return MeasuredNodes(tuple(results), tuple(damages))


def _damage(paths: RunPaths, name: str, digest: str) -> Damage | None:
    if _NAME.fullmatch(name) is None:  # a path of an opponent may lead anywhere
        return Damage("micro", None, "record", "a node's file has another name than a node", "NODE.json")
    file = f"micro/{name}"
    if not measured_file(paths, name).exists():
        return Damage(file, None, "missing", "the results of a measured node are missing")
    try:
        found = hash_of(read_bounded(measured_file(paths, name), SMALL.size))
    except RunDirectoryError as error:
        return Damage(file, None, "record", str(error).removeprefix(f"{measured_file(paths, name)}: "))
    return None if found == digest else Damage(file, None, "record", f"its hash is {found}", f"{digest}, as recorded")
