"""The option --figure: runs together in the figures of Ren et al. 2021, as files and as a page."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from aiperf.cli.command import write_output
from aiperf.cli.lines import to_open, warn
from aiperf.errors import EnvironmentNotReadyError
from analysis.output.figures.paper import Line, paper_drawings
from analysis.output.figures.style import Drawing
from analysis.output.page import vocabulary as words
from analysis.output.pages import render
from analysis.output.pictures import save_drawing
from analysis.results.paper import read_lines

PAGE = "figures.html"


def add_figure(parser: argparse.ArgumentParser) -> None:
    """Add --figure."""
    parser.add_argument(
        "--figure",
        type=Path,
        metavar="FOLDER",
        help="also draw score and use over time, and score by size, as a page, PDF, SVG and PNG",
    )


def write_figures(folder: Path, runs: Sequence[Path]) -> None:
    """Draw runs together. Raises RunDirectoryError, and EnvironmentNotReadyError."""
    lines = read_lines(runs)
    drawings = paper_drawings(lines)
    write_output(folder / PAGE, figures_page(lines, drawings))
    try:
        for drawing in drawings:
            save_drawing(folder, drawing)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}"]) from error
    warn(f"next: {to_open(folder / PAGE)}")


def figures_page(lines: Sequence[Line], drawings: Sequence[Drawing]) -> str:
    """The page of the figures as one file."""
    unsampled = sum(line.use is None for line in lines)
    return render(
        "figures.html",
        drawings={drawing.name: drawing for drawing in drawings},
        unsampled=unsampled,
        runs=len(lines),
        words=words,
    )
