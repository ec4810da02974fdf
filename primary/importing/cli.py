"""The verb `aiperf config`: shows the settings in force, translates those of earlier versions."""

import argparse
import json
from pathlib import Path

from aiperf.cli.command import Command, add_action, write_output
from aiperf.cli.config_show import add_show
from aiperf.cli.lines import say_text, warn
from aiperf.config.settings import load_config
from aiperf.config.space import read_space
from aiperf.config.toml_text import as_toml
from aiperf.errors import EXIT_DONE
from aiperf.files import temporary_folder
from aiperf.untrusted.text import cut
from primary.importing.experiment import Translation, read_experiment

SUMMARY_CHARACTERS = 200
"""Upper limit for the characters of a line of the summary."""

HEADINGS = {
    "translated": "translated",
    "fixed": "fixed by the rules",
    "meaningless": "without a meaning here",
    "unknown": "unknown: check these yourself",
}


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    add_show(actions)
    importing = add_action(
        actions,
        "import",
        "turn an NNI experiment of the earlier implementation into TOML",
        "aiperf config import config.yml --output run.toml",
    )
    importing.add_argument("file", type=Path, metavar="config.yml", help="the experiment's configuration")
    importing.add_argument("--space", type=Path, metavar="search_space.json", help="its search space")
    importing.add_argument("--output", type=Path, metavar="FILE", help="file for the TOML (default: standard output)")
    importing.set_defaults(action=_import)


def _import(arguments: argparse.Namespace) -> int:
    translation = read_experiment(arguments.file, arguments.space)
    space_file = None
    if translation.space:
        space_file = (arguments.output or arguments.file).with_suffix(".space.json").absolute()
        text = json.dumps(translation.space, indent=2) + "\n"
        _check_space(text)
        write_output(space_file, text)
        translation.settings["search.space"] = str(space_file)
    load_config(overrides=translation.settings)
    text = as_toml(translation.settings)
    if arguments.output is None:
        say_text(text)
    else:
        write_output(arguments.output, text)
    _print_summary(translation, space_file)
    return EXIT_DONE


def _check_space(text: str) -> None:
    """Raise ConfigError if a run could not use the space."""
    with temporary_folder() as folder:
        file = folder / "search_space.json"
        file.write_text(text, encoding="utf-8")
        read_space(file)


def _print_summary(translation: Translation, space_file: Path | None) -> None:
    for name, heading in HEADINGS.items():
        lines = getattr(translation, name)
        if lines:
            warn(f"{heading}:", *(f"  {cut(line, SUMMARY_CHARACTERS)}" for line in lines))
    if space_file is not None:
        warn(f"the search space is in {space_file}; a run with a space of its own is unofficial")


CONFIG = Command(
    description="Show the settings of a run before it starts, or translate those of the earlier implementation.",
    example="aiperf config show --preset quick --set run.replicas=4",
    configure=_configure,
    execute=lambda arguments: int(arguments.action(arguments)),
)
