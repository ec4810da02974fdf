"""Options for the configuration of a run, for the verbs that start runs or write job scripts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from aiperf.cli.command import suggest
from aiperf.config.datasets import DATASETS
from aiperf.config.settings import PRESETS, RunConfig, load_config, parse_override
from aiperf.errors import ConfigError

SHORTHANDS = {
    "replicas": ("run.replicas", "N", "number of replicas"),
    "launcher": ("run.launcher", "NAME", "where replicas run: local, slurm or ssh"),
    "manager": ("run.manager", "NAME", "when replicas get jobs: native, or nni (needs the extra [nni])"),
    "duration": ("run.duration", "TIME", "wall time of the run: 90s, 5m, 1h30m, 12h"),
    "dataset": ("run.dataset", "NAME", "data set: imagenet, digits (embedded) or images (any)"),
    "data_dir": ("run.data_dir", "DIR", "directory of the data set (see: aiperf dataset)"),
    "seed": ("run.seed", "N", "seed of all random streams"),
    "name": ("run.name", "TEXT", "name of the run, for reports"),
}
"""Options that stand for keys of the configuration: key, placeholder, meaning."""

SUGGESTED = {"launcher": ("local", "slurm", "ssh"), "manager": ("native", "nni"), "dataset": DATASETS}
"""Values that the shell completes."""

NUMBERS = frozenset({"replicas", "seed"})


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The configuration file, presets, shorthands and --set."""
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG.toml", help="configuration file")
    preset = parser.add_argument("--preset", metavar="|".join(PRESETS), help="start from a preset, not the defaults")
    suggest(preset, PRESETS)
    for name, (_, placeholder, meaning) in SHORTHANDS.items():
        kind = _number if name in NUMBERS else str
        option = parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=placeholder, help=meaning)
        suggest(option, SUGGESTED.get(name, ()))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="any key of the configuration, such as training.batch_size=64; repeatable")  # fmt: skip


def _number(text: str) -> int | str:
    """A whole number, or the text itself, which the configuration then complains about."""
    try:
        return int(text)
    except ValueError:
        return text


def read_run_options(arguments: argparse.Namespace) -> RunConfig:
    """The configuration that the options make. Raises ConfigError with all problems at once."""
    return load_config(arguments.config, arguments.preset, _overrides(arguments))


def words_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The same options as words for another command line; paths are made absolute."""
    words = [str(arguments.config.absolute())] if arguments.config else []
    words += ["--preset", arguments.preset] if arguments.preset else []
    for name in SHORTHANDS:
        value = getattr(arguments, name)
        if value is not None and name != "launcher":
            words += [f"--{name.replace('_', '-')}", str(value)]
    return (*words, *(word for text in arguments.overrides for word in ("--set", text)))


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    problems: list[str] = []
    for text in arguments.overrides:
        try:
            key, value = parse_override(text)
            result[key] = value
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    for name, (key, _, _) in SHORTHANDS.items():
        if getattr(arguments, name) is not None:
            result[key] = getattr(arguments, name)
    return result
