"""The settings in force before a run, with where each comes from (`aiperf config show`)."""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.cli.command import add_action, suggest
from aiperf.cli.lines import say_json, say_text
from aiperf.cli.run_options import add_run_options, read_run_layers
from aiperf.config.duration import exact_duration
from aiperf.config.settings import Layer, RunConfig, config_of, origins
from aiperf.config.toml_text import toml_value
from aiperf.config.wording import find_setting, is_duration, keys_of, similar_keys
from aiperf.errors import EXIT_DONE, UsageError
from aiperf.untrusted.text import for_terminal, shown

FORMATS = ("toml", "json")

COMMENT_COLUMN = 40


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force; `value` is what a file would hold, None if it is not set."""

    key: str
    value: Any
    source: str


def add_show(actions: Any) -> None:
    """Add the action `show` to the verb's actions."""
    parser = add_action(
        actions,
        "show",
        "print the settings in force, with where each comes from",
        "aiperf config show --preset quick run.duration",
    )
    config = add_run_options(parser)
    key = parser.add_argument("key", nargs="?", metavar="KEY", help="only this setting, such as run.duration")
    config.completer = _complete_first  # type: ignore[attr-defined]
    suggest(key, tuple(keys_of(RunConfig)))
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="how to print (default: %(default)s)")
    parser.set_defaults(action=show)


def _complete_first(prefix: str, **_: object) -> list[str]:
    """Complete the first word, which is a key or a file."""
    from argcomplete.completers import FilesCompleter  # noqa: PLC0415

    return [*keys_of(RunConfig), *FilesCompleter(("toml",))(prefix)]


def show(arguments: argparse.Namespace) -> int:
    """Print the settings. Raises ConfigError; UsageError if there is no such key."""
    _sort_words(arguments)
    problems: list[str] = []
    layers = read_run_layers(arguments, problems)
    found = settings_in_force(config_of(layers, problems), layers)
    if arguments.key is not None:
        found = [setting for setting in found if setting.key == arguments.key]
    if arguments.format == "json":
        text = json.dumps({item.key: {"value": item.value, "from": item.source} for item in found}, indent=2)
        say_json(text)
    else:
        say_text(as_toml(found))
    return EXIT_DONE


def settings_in_force(config: RunConfig, layers: Sequence[Layer]) -> list[Setting]:
    """List the settings in order."""
    values: Mapping[str, Mapping[str, Any]] = config.model_dump(mode="json")
    sources = origins(layers)
    return [Setting(key, _written(key, values), sources[key]) for key in keys_of(RunConfig)]


def as_toml(settings: Sequence[Setting]) -> str:
    """TOML that loads as the same settings; what is not set is a comment."""
    return "\n".join(_lines(settings)) + "\n"


def _lines(settings: Sequence[Setting]) -> Iterator[str]:
    section = None
    for setting in settings:
        own, _, name = setting.key.partition(".")
        if own != section:
            yield from [f"[{own}]"] if section is None else ["", f"[{own}]"]
            section = own
        line = f"# {name} is not set" if setting.value is None else f"{name} = {toml_value(setting.value)}"
        yield f"{line:<{COMMENT_COLUMN}}  # {for_terminal(setting.source)}"


def _written(key: str, values: Mapping[str, Mapping[str, Any]]) -> Any:
    section, _, name = key.partition(".")
    value, field = values[section][name], find_setting(RunConfig, key)
    return exact_duration(value) if field is not None and is_duration(field) else value


def _sort_words(arguments: argparse.Namespace) -> None:
    """Separate a key from a file: both are words without an option, and either may be missing."""
    first = str(arguments.config or "")
    looks_like_key = re.fullmatch(r"\w+\.\w+", first) is not None and not first.endswith(".toml")
    if arguments.key is None and looks_like_key and not Path(first).exists():
        arguments.key, arguments.config = first, None
    if arguments.key is not None and find_setting(RunConfig, arguments.key) is None:
        near = similar_keys(RunConfig, arguments.key)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown setting {shown(arguments.key)}; {hint}all of them: aiperf config show")
