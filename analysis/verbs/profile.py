"""The second half of `aiperf profile`: a profile or a sweep as tables, figures and a page."""

import argparse
from pathlib import Path

from pydantic import BaseModel

from aiperf.cli.command import Command, add_format
from aiperf.cli.console import PlainConsole, open_console
from aiperf.cli.lines import say_json, to_open, warn
from aiperf.cli.tables import make_table, print_line
from aiperf.cli.units import percent, si
from aiperf.errors import EXIT_DONE, EnvironmentNotReadyError
from aiperf.files import write_atomically
from analysis.output.figures.profile import profile_chart, sweep_chart, timeline_chart
from analysis.output.figures.style import Drawing
from analysis.output.page import vocabulary as words
from analysis.output.pages import render
from analysis.output.pictures import save_drawing
from analysis.reading.profile import MemorySweep, Profile, read_profile, read_sweep

MOST_ROWS = 25
"""Upper limit for the operations that are printed; profile.json has all."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", type=Path, metavar="FILE", help="the profile.json or sweep.json that was recorded")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write JSON, page and figures")
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    if arguments.profile.stem == "sweep":
        sweep = read_sweep(arguments.profile)
        if arguments.output is not None:
            drawings = {"sweep": sweep_chart(sweep)}
            _write(
                arguments.output,
                "sweep",
                sweep,
                drawings,
                render("sweep.html", sweep=sweep, drawings=drawings, words=words),
            )
        if arguments.format == "json":
            say_json(_as_json(sweep))
        else:
            _print_sweep(open_console(), sweep)
        return EXIT_DONE
    profile = read_profile(arguments.profile)
    if arguments.output is not None:
        drawings = {"profile": profile_chart(profile), "timeline": timeline_chart(profile)}
        page = render("profile.html", profile=profile, drawings=drawings, words=words)
        _write(arguments.output, "profile", profile, drawings, page)
    if arguments.format == "json":
        say_json(_as_json(profile))
    else:
        _print(open_console(), profile)
    return EXIT_DONE


def _as_json(found: BaseModel) -> str:
    return found.model_dump_json(indent=2)


def _write(folder: Path, name: str, found: BaseModel, drawings: dict[str, Drawing], page: str) -> None:
    try:
        write_atomically(folder / f"{name}.json", _as_json(found).encode() + b"\n")
        write_atomically(folder / f"{name}.html", page.encode())
        for drawing in drawings.values():
            save_drawing(folder, drawing)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}"]) from error
    warn(f"next: {to_open(folder / f'{name}.html')}")


def _print(console: PlainConsole, profile: Profile) -> None:
    _print_operations(console, profile)
    _print_phases(console, profile)
    _print_layers(console, profile)
    _print_work(console, profile)
    _print_memory(console, profile)
    _print_counters(console, profile)
    rate = profile.images_per_second
    print_line(
        console,
        f"{profile.step_s * 1000:.1f} ms per step of {profile.settings.batch_size} images: {rate:.1f} images/s, "
        f"{si(rate * profile.image_operations, 'OPS')} while training",
    )


def _print_operations(console: PlainConsole, profile: Profile) -> None:
    total_s = sum(item.seconds for item in profile.operations)
    table = make_table(
        "Operations of a training step",
        "operation",
        "phase",
        "library",
        "ms per step",
        "share",
        "calls per step",
        left=("operation", "phase", "library"),
    )
    for item in profile.operations[:MOST_ROWS]:
        table.add_row(
            item.operation,
            item.phase,
            item.library,
            f"{1000 * item.seconds:.2f}",
            f"{100 * item.seconds / total_s:.1f} %",
            f"{item.calls:.0f}",
        )
    console.print(table)


def _print_phases(console: PlainConsole, profile: Profile) -> None:
    total_s = sum(profile.phases.values())
    table = make_table("Wall time", "phase", "ms per step", "share", left=("phase",))
    for name, seconds in profile.phases.items():
        table.add_row(name, f"{1000 * seconds:.2f}", percent(seconds / total_s))
    for name, seconds in profile.outside.items():
        table.add_row(f"outside the step: {name}", f"{1000 * seconds:.2f}", "")
    console.print(table)


def _print_layers(console: PlainConsole, profile: Profile) -> None:
    table = make_table("Layers", "kind", "layers", "ms per step", "operations", "rate", left=("kind",))
    for item in profile.layers:
        counted = si(item.operations, "OP") if item.operations else "not counted"
        table.add_row(item.kind, str(item.layers or ""), f"{1000 * item.seconds:.2f}", counted, si(item.rate, "OPS"))
    console.print(table)


def _print_work(console: PlainConsole, profile: Profile) -> None:
    table = make_table(
        "Counted and executed operations of a step",
        "kind",
        "layers",
        "counted",
        "executed",
        "executed / counted",
        left=("kind",),
    )
    for item in profile.work:
        executed = "not known" if item.executed is None else si(item.executed, "OP")
        ratio = "" if item.ratio is None else f"{item.ratio:.3f}"
        table.add_row(item.kind, str(item.layers or ""), si(item.counted, "OP"), executed, ratio)
    console.print(table)
    print_line(console, f"executed by {profile.work_source}")
    for item in profile.work:
        if item.reason:
            print_line(console, f"{item.kind}: {item.reason}")


def _print_memory(console: PlainConsole, profile: Profile) -> None:
    memory = make_table("Memory at the peak", "what", "bytes", left=("what",))
    for name, size in sorted(profile.memory_bytes.items(), key=lambda item: -item[1]):
        memory.add_row(name, si(size, "B"))
    console.print(memory)
    known = profile.allocator
    print_line(
        console,
        "the framework recorded no allocations: activations, gradients and temporaries are not known"
        if known is None
        else f"allocator {known.name}: peak {si(known.peak_bytes, 'B')}, {percent(known.explained)} of it explained; "
        f"since its begin {si(known.lifetime_peak_bytes, 'B')}; fragmentation of the free part "
        f"{percent(known.fragmentation)}; whole process {si(profile.process_peak_bytes, 'B')}",
    )


def _print_counters(console: PlainConsole, profile: Profile) -> None:
    found = profile.counters
    table = make_table("Hardware counters", "counter", "per step", left=("counter", "per step"))
    for name, value in found.per_step.items():
        table.add_row(name, si(value))
    for name, reason in found.missing.items():
        table.add_row(name, reason)
    console.print(table)
    if found.executed_operations is not None:
        share = found.executed_operations / found.counted_operations
        print_line(
            console,
            f"executed {si(found.executed_operations, 'OP')} in single precision: {percent(share)} "
            f"of the counted {si(found.counted_operations, 'OP')}",
        )


def _print_sweep(console: PlainConsole, sweep: MemorySweep) -> None:
    table = make_table(
        "Memory of a training step",
        sweep.axis,
        "weights",
        "intermediate",
        "temporary",
        "unexplained",
        "peak",
        "process",
        "ms per step",
        left=(),
    )
    for point in sweep.points:
        if point.fits:
            sizes = (
                point.weights_bytes,
                point.intermediate_bytes,
                point.temporary_bytes,
                point.unexplained_bytes,
                point.peak_bytes,
                point.process_peak_bytes,
            )
            table.add_row(str(point.value), *(si(size, "B") for size in sizes), f"{1000 * (point.step_s or 0):.1f}")
    console.print(table)
    for point in sweep.points:
        if not point.fits:
            print_line(console, f"{sweep.axis} {point.value} does not fit: {point.reason}")
    if sweep.largest_predicted is not None:
        print_line(
            console,
            f"largest batch that fits into {si(sweep.limit_bytes, 'B')}: {sweep.largest_predicted}, "
            "predicted by a line through these points",
        )


REPORT_PROFILE = Command(
    description="Tables, figures and page of a recorded profile. The second half of aiperf profile.",
    example="aiperf profile runs/first --output runs/first-profile",
    configure=_configure,
    execute=_execute,
)
