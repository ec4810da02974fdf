"""A folder of files that are named like modules, and must not be imported in their place."""

import os
import sys
from pathlib import Path

NAMES = (
    "aiperf",
    "analysis",
    "primary",
    "replica",
    "search_space",
    "slurm",
    "json",
    "keras",
    "logging",
    "nni",
    "numpy",
    "psutil",
    "pydantic",
    "random",
    "signal",
    "tensorflow",
    "types",
)
"""Modules of the project, of the standard library and of its dependencies."""

ENTRY_POINT = Path(sys.executable).with_name("aiperf")
"""The installed command.

Unlike `python -m aiperf`, it does not search the working directory for modules.
"""


def fill(folder: Path) -> Path:
    """Make a folder with a file for each name, whose import ends the program."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise RuntimeError('{name} is shadowed')\n")
    return folder


def environment() -> dict[str, str]:
    """The environment of the tests, without what would protect their children already."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
