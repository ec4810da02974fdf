"""The micro suite's results of a run's nodes: files whose hashes the primary has recorded."""

import re
from dataclasses import dataclass

from aiperf.errors import RunDirectoryError
from aiperf.records.chain import hash_of
from aiperf.records.damage import Damage
from aiperf.records.ledger import Ledger
from aiperf.run_directory.micro_results import NodeResult, decoded_node
from aiperf.run_directory.paths import RunPaths, measured_file
from aiperf.untrusted.reading import SMALL, read_bounded

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
        found = _read(paths, name, digest)
        if isinstance(found, Damage):
            damages.append(found)
        else:
            results.append(found)
    return MeasuredNodes(tuple(results), tuple(damages))


def _read(paths: RunPaths, name: str, digest: str) -> NodeResult | Damage:
    if _NAME.fullmatch(name) is None:  # a path of an opponent may lead anywhere
        return Damage("micro", None, "record", "a node's file has another name than a node", "NODE.json")
    file, path = f"micro/{name}", measured_file(paths, name)
    if not path.exists():
        return Damage(file, None, "missing", "the results of a measured node are missing")
    try:
        data = read_bounded(path, SMALL.size)
        if (found := hash_of(data)) != digest:
            return Damage(file, None, "record", f"its hash is {found}", f"{digest}, as recorded")
        return decoded_node(data, str(path))
    except RunDirectoryError as error:
        return Damage(file, None, "record", str(error).removeprefix(f"{path}: "))
