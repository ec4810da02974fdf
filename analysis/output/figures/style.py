"""The look of all figures, and their files: SVG that takes the colours of its page, and PNG."""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

INK = "#0a0b0c"
"""Text and axes. In a page it becomes the page's own colour: one drawing for light and dark."""

GRID = "#8a8f98"
COLOURS = ("#0a84c6", "#e08a00", "#12a178", "#c9639b", "#7d6fd0", "#b8860b")
"""Colours after Okabe and Ito's palette for all kinds of colour vision, readable on white and
black."""

PHASE_COLOURS = {
    "train": "#0a84c6",
    "evaluate": "#75d1ff",
    "checkpoint": "#32c172",
    "search": "#f28d0a",
    "start": "#7c386f",
    "build": "#9895f7",
    "storage": "#988063",
    "idle": "#bbbbbb",
    "down": "#a43826",
}
"""Colours of areas that touch: told apart by lightness where a colour vision lacks the hue."""

LOST_COLOURS = PHASE_COLOURS | {"lost": "#45474f", "repeated": "#83868f", "unreported": "#e2d3b0"}
"""Colours of the causes of lost hours."""

SETTINGS = {
    "font.size": 9,
    "font.family": "sans-serif",
    # Text stays text: it can be selected and searched, and is shown in a font of the reader's.
    "svg.fonttype": "none",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "axes.prop_cycle": cycler(color=COLOURS),
}

WIDTH_IN, HEIGHT_IN = 6.4, 3.0
PNG_DPI = 160


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure: its file name, its caption, and its files."""

    name: str
    caption: str
    svg: str
    png: bytes
    pdf: bytes = b""
    """For papers, with embedded outlines of letters; empty if the figure is of a report."""

    @property
    def inline_svg(self) -> str:
        """The SVG as part of a page: as wide as its place, in the page's text colour.

        Its ids begin with its name, as a page may have several; its metadata are no HTML.
        """
        body = self.svg[self.svg.index("<svg") :]
        body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
        body = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{self.name}-", body)
        body = body.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
        body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
        body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 width="100%"', body, count=1)
        return re.sub(rf"{INK}", "currentColor", body)


def draw(
    name: str,
    caption: str,
    paint: Callable[[Any], None],
    height_in: float = HEIGHT_IN,
    width_in: float = WIDTH_IN,
    for_papers: Mapping[str, Any] | None = None,
) -> Drawing:
    """Paint on a new figure and save it. The same data give the same bytes.

    `for_papers`: settings of a figure that is saved as PDF, too.
    """
    # The ids within an SVG are random without a salt. Type 42 embeds TrueType, where publishers
    # refuse Matplotlib's default, Type 3.
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": name, "pdf.fonttype": 42, **(for_papers or {})}):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        paint(figure)
        svg, png, pdf = io.StringIO(), io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=PNG_DPI, facecolor="white")
        if for_papers is not None:
            figure.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Creator": None})
    return Drawing(name, caption, svg.getvalue(), png.getvalue(), pdf.getvalue())


def time_unit(duration_s: float) -> tuple[float, str]:
    """The unit that suits a duration: its seconds and its name."""
    if duration_s >= 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if duration_s >= 180 else (1.0, "seconds")
