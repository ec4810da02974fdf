"""Options that rehearsals and predictions share."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.cli.command import suggest
from aiperf.cli.lines import warn
from aiperf.cli.run_options import add_run_options, read_run_layers
from aiperf.config.settings import RunConfig, config_of, override_layers
from aiperf.errors import ConfigError
from aiperf.untrusted.text import shown
from rehearsal.lifecycle import Rehearsal, SearchKind
from rehearsal.machine.file import FOLDER, AllReduceSection, MachineFile, known_machines, read_machine
from rehearsal.machine.from_measurements import measured
from rehearsal.pace import all_reduce_s

MOST_REAL = 64
"""Replicas up to which the search is real unless an option says otherwise."""

RESNET50 = 25_610_152
"""Weights of ResNet-50 for ImageNet, moving statistics included."""

FAR = 1.25
"""Factor between two times from which on one contradicts the other (our choice)."""

SEARCHES = ("auto", "real", "modelled")


def add_rehearsal_options(parser: argparse.ArgumentParser) -> None:
    """The machine, the search, and the configuration of the run."""
    add_run_options(parser)
    parser.add_argument(
        "--machine",
        type=_find_machine,
        metavar="FILE|NAME",
        help=f"machine file, or one that comes with AIPerf: {', '.join(known_machines())}",
    )
    parser.add_argument(
        "--from",
        type=Path,
        nargs="+",
        default=[],
        dest="measured",
        metavar="PATH",
        help="finished runs, files of aiperf profile, or folders of aiperf screen --fabric, whose figures go before "
        "those of the machine file",
    )
    search = parser.add_argument(
        "--search",
        default="auto",
        metavar="|".join(SEARCHES),
        help=f"real: the search of the configuration; modelled: drawn at random, at its cost; auto: real up to "
        f"{MOST_REAL} replicas",
    )
    suggest(search, SEARCHES)


def read_rehearsal(arguments: argparse.Namespace, **overrides: object) -> Rehearsal:
    """The rehearsal that the options make; overrides are settings of the section `run`.

    Raises ConfigError with all problems at once, and RunDirectoryError for runs without epochs.
    """
    problems: list[str] = []
    if arguments.search not in SEARCHES:
        problems.append(f"--search {arguments.search}: allowed are {', '.join(SEARCHES)}")
    layers = read_run_layers(arguments, problems)
    layers += override_layers("rehearsal", "training.trainer", "simulated", problems)
    for name, value in overrides.items():
        layers += override_layers("rehearsal", f"run.{name}", value, problems)
    try:
        machine = _machine(arguments.machine, arguments.measured)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if machine.node.nodes > 1:
        layers += override_layers("rehearsal", "replica.nodes", machine.node.nodes, problems)
    config = config_of(layers, problems)
    problems = list(_ranks(config, machine))
    if problems:
        raise ConfigError(problems)
    search = _search(arguments.search, config)
    if search == "modelled":
        for name in ("search.strategy", "search.hpo"):
            layers += override_layers("rehearsal", name, "unguided", problems)
        config = config_of(layers, problems)
    return Rehearsal(config, machine, search)


def _ranks(config: RunConfig, machine: MachineFile) -> Iterator[str]:
    """Yield reasons why the machine's replicas cannot train as configured."""
    groups, ranks = config.training.groups, machine.node.ranks
    if ranks % groups:
        yield f"training.groups: {groups} groups cannot share the {ranks} accelerators of a replica evenly"


def _find_machine(text: str) -> Path:
    """A file, or the one of a name that is known."""
    if Path(text).exists() or Path(text).name != text or Path(text).suffix:
        return Path(text)
    if text not in known_machines():
        known = ", ".join(known_machines())
        raise argparse.ArgumentTypeError(f"no file and no known machine: {shown(text)}; known are {known}")
    return FOLDER / f"{text}.toml"


def _machine(file: Path | None, paths: Sequence[Path]) -> MachineFile:
    known = read_machine(file) if file is not None else None
    if paths:
        found = measured(paths, known)
        if known is not None and (text := contradiction(known, found)) is not None:
            warn(f"remark: {text}")
        return found
    if known is None:
        raise ConfigError(["name a machine: --machine FILE, or runs or a profile of it: --from PATH"])
    return known


def _search(asked: str, config: RunConfig) -> SearchKind:
    if asked == "auto":
        return "real" if config.run.replicas <= MOST_REAL else "modelled"
    return "real" if asked == "real" else "modelled"


def contradiction(planned: MachineFile, measured: MachineFile) -> str | None:
    """The all-reduce of a machine file against a measured one, in words; None if they agree."""
    if "all_reduce" not in planned.model_fields_set:
        return None
    ranks = max(2, planned.node.ranks)
    there, here = (_seconds(each.all_reduce, ranks) for each in (planned, measured))
    if max(there, here) <= FAR * min(there, here):
        return None
    return (
        f"an all-reduce of ResNet-50 over {ranks} ranks takes {here * 1e3:.3g} ms as measured, {there * 1e3:.3g} ms by "
        f"[all_reduce] of the machine file ({there / here:.2f} x): the measured one counts"
    )


def _seconds(section: AllReduceSection, ranks: int) -> float:
    return max(all_reduce_s(section, ranks, RESNET50), 1e-12)
