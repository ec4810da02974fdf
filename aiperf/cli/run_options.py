"""Options for the configuration of a run, for the verbs that start runs or write job scripts."""

import argparse
from pathlib import Path

from aiperf.cli.command import suggest
from aiperf.config.datasets import DATASETS
from aiperf.config.frameworks import TRAITS
from aiperf.config.settings import (
    PRESETS,
    Layer,
    RunConfig,
    config_of,
    override_layers,
    parse_override,
    read_layers,
)
from aiperf.config.wording import keys_of
from aiperf.errors import ConfigError

SHORTHANDS = {
    "replicas": ("run.replicas", "N", "number of replicas"),
    "launcher": ("run.launcher", "NAME", "where replicas run: local, slurm, scheduler, ssh or ray"),
    "exclude": ("run.exclude", "FILE|LIST", "nodes that get no replica: a host list, or a file of names"),
    "address": ("ray.address", "ADDRESS", "the Ray cluster of --launcher ray: auto, or HOST:PORT"),
    "manager": ("run.manager", "NAME", "what paces jobs: native, or nni, Neural Network Intelligence (extra [nni])"),
    "duration": ("run.duration", "TIME", "wall time of the run: 90s, 5m, 1h30m, 12h"),
    "dataset": ("run.dataset", "NAME", "data set: imagenet, digits (embedded) or images (any)"),
    "data_dir": ("run.data_dir", "DIR", "directory of the data set (see: aiperf dataset)"),
    "framework": ("training.framework", "NAME", f"framework that trains: {' or '.join(TRAITS)}"),
    "suite": ("run.suite", "NAME", "automl, or science: scientific workloads (docs/science.md)"),
    "workload": ("science.workloads", "NAME[,NAME]", "workloads of the scientific suite"),
    "instances": ("science.instances", "N", "models of each scientific workload"),
    "seed": ("run.seed", "N", "seed of all random streams"),
    "name": ("run.name", "TEXT", "name of the run, for reports"),
}
"""Options that stand for keys of the configuration: key, placeholder, meaning."""

LAUNCHERS = ("local", "ray", "scheduler", "slurm", "ssh")
SUITES = ("automl", "science")
SUGGESTED = {
    "suite": SUITES,
    "launcher": LAUNCHERS,
    "manager": ("native", "nni"),
    "dataset": DATASETS,
    "framework": tuple(TRAITS),
}
"""Values that the shell completes."""

NUMBERS = frozenset({"replicas", "seed", "instances"})
LISTS = frozenset({"workload"})
HOSTS = frozenset({"exclude"})


def add_run_options(parser: argparse.ArgumentParser) -> argparse.Action:
    """The configuration file, presets, shorthands and --set; the argument of the file."""
    config = parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG.toml", help="configuration file")
    parser.add_argument("--config", type=Path, metavar="CONFIG.toml", dest="config_file", help="the same, as an option")
    preset = parser.add_argument("--preset", metavar="|".join(PRESETS), help="start from a preset, not the defaults")
    suggest(preset, PRESETS)
    for name, (_, placeholder, meaning) in SHORTHANDS.items():
        kind = _number if name in NUMBERS else _list if name in LISTS else _hosts if name in HOSTS else str
        option = parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=placeholder, help=meaning)
        suggest(option, SUGGESTED.get(name, ()))
    parser.add_argument(
        "--rehearsal",
        action="store_true",
        help="scientific workloads at a size for a laptop, on generated data; unofficial",
    )
    override = parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="any key of the configuration, such as training.batch_size=64; repeatable",
    )
    suggest(override, [f"{key}=" for key in keys_of(RunConfig)])
    return config


def _number(text: str) -> int | str:
    """A whole number, or the text itself, which the configuration then complains about."""
    try:
        return int(text)
    except ValueError:
        return text


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _hosts(text: str) -> str | None:
    """A host list, or the names in the file of that name; None if the file names nobody."""
    file = Path(text)
    try:
        if not file.is_file():
            if "/" in text:  # no host has one: a mistyped path would exclude nobody
                raise argparse.ArgumentTypeError(f"{text!r} is neither a file nor a host list")
            return text
        return ",".join(file.read_text(encoding="utf-8-sig").split()) or None
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error}") from None


def read_run_options(arguments: argparse.Namespace) -> RunConfig:
    """The configuration that the options make. Raises ConfigError with all problems at once."""
    problems: list[str] = []
    return config_of(read_run_layers(arguments, problems), problems)


def read_run_layers(arguments: argparse.Namespace, problems: list[str]) -> list[Layer]:
    """The settings by their source, later ones over earlier ones; bad options are `problems`."""
    if arguments.config is not None and arguments.config_file is not None:
        problems.append(f"two configuration files, {arguments.config} and {arguments.config_file}: name one")
    layers = read_layers(arguments.config or arguments.config_file, arguments.preset, problems)
    for text in arguments.overrides:
        try:
            layers += override_layers("--set", *parse_override(text), problems)
        except ConfigError as error:
            problems += error.problems
    for name, (key, _, _) in SHORTHANDS.items():
        if getattr(arguments, name) is not None:
            layers += override_layers(f"--{name.replace('_', '-')}", key, getattr(arguments, name), problems)
    if arguments.rehearsal:
        layers += override_layers("--rehearsal", "science.size", "rehearsal", problems)
    return layers


def words_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Turn these options into words of another command line, with file and --data-dir absolute."""
    file = arguments.config or arguments.config_file
    words = [str(file.absolute())] if file else []
    words += ["--preset", arguments.preset] if arguments.preset else []
    for name in SHORTHANDS:
        value = getattr(arguments, name)
        if value is not None and name != "launcher":
            words += [f"--{name.replace('_', '-')}", _word(name, value)]
    words += ["--rehearsal"] if arguments.rehearsal else []
    return (*words, *(word for text in arguments.overrides for word in ("--set", text)))


def _word(name: str, value: object) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(Path(str(value)).absolute() if name == "data_dir" else value)
