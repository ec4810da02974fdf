"""The second half of `aiperf profile`: a profile as tables, a figure and a page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from aiperf.cli.command import Command, add_format
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json
from aiperf.cli.units import si
from aiperf.errors import EXIT_DONE, EnvironmentNotReadyError
from aiperf.files import write_atomically
from analysis.output.artifacts import save_drawing
from analysis.output.figures.profile import profile_chart
from analysis.output.pages import render
from analysis.output.tables import make_table, print_line
from analysis.reading.profile import Profile, read_profile

MOST_ROWS = 25
"""Most operations that are printed; profile.json has all."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", type=Path, metavar="profile.json", help="the profile that was recorded")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write profile.json, .html and the figure")
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    profile = read_profile(arguments.profile)
    if arguments.output is not None:
        _write(arguments.output, profile)
    if arguments.format == "json":
        say_json(_as_json(profile))
    else:
        _print(profile)
    return EXIT_DONE


def _as_json(profile: Profile) -> str:
    return json.dumps(profile.model_dump(mode="json"), indent=2)


def _write(folder: Path, profile: Profile) -> None:
    drawing = profile_chart(profile)
    try:
        write_atomically(folder / "profile.json", _as_json(profile).encode() + b"\n")
        write_atomically(folder / "profile.html", render("profile.html", profile=profile, drawing=drawing).encode())
        save_drawing(folder, drawing)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}"]) from error


def _print(profile: Profile) -> None:
    console, total_s = open_console(), sum(item.seconds for item in profile.operations)
    table = make_table(
        "Operations of a training step", "operation", "phase", "ms per step", "share", "calls per step",
        left=("operation", "phase"),
    )  # fmt: skip
    for item in profile.operations[:MOST_ROWS]:
        table.add_row(item.operation, item.phase, f"{1000 * item.seconds:.2f}",
                      f"{100 * item.seconds / total_s:.1f} %", f"{item.calls:.0f}")  # fmt: skip
    console.print(table)
    memory = make_table("Memory", "what", "bytes", left=("what",))
    for name, size in sorted(profile.memory_bytes.items(), key=lambda item: -item[1]):
        memory.add_row(name, si(size, "B"))
    console.print(memory)
    rate = profile.images_per_second
    print_line(
        console,
        f"{profile.step_s * 1000:.1f} ms per step of {profile.settings.batch_size} images: {rate:.1f} images/s, "
        f"{si(rate * profile.image_operations, 'OPS')} while training",
    )


REPORT_PROFILE = Command(
    description="Tables, figure and page of a recorded profile. The second half of aiperf profile.",
    example="aiperf profile runs/first --output runs/first-profile",
    configure=_configure,
    execute=_execute,
)
