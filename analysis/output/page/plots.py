"""The look of the page's charts, which Bokeh draws in the browser."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import (
    BoxZoomTool,
    GlyphRenderer,
    HoverTool,
    Line,
    PanTool,
    ResetTool,
    Step,
    WheelZoomTool,
)
from bokeh.plotting import figure

from analysis.output.figures.style import GRID, INK

HEIGHT = 280
FONT = "system-ui, sans-serif"
LABEL = "12px"
CLIP = "inset(-300px -300px -300px 2px)"
"""Clip of a canvas without its first column: Bokeh's text of an axis leaves marks there."""

LINES = ":host { max-width: calc(100% - 4px); } .bk-grid { display: flex; flex-wrap: wrap; width: auto; }"
"""Style of a legend that takes another line where its entries do not fit into one."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the page: the name of its place, its caption, and its plot."""

    name: str
    caption: str
    plot: Any

    @property
    def label(self) -> str:
        """The chart in words: its caption, and the first, last and highest value of each line."""
        return " ".join([self.caption, *filter(None, map(_spoken, self._lines()))])

    def _lines(self) -> Iterator[tuple[str, list[float]]]:
        """The name and the heights of each line that has a name."""
        for renderer in self.plot.renderers:
            if isinstance(renderer, GlyphRenderer) and isinstance(renderer.glyph, Line | Step):
                legend = next((item.label.value for item in self._items() if renderer in item.renderers), "")
                yield legend or str(self.plot.yaxis[0].axis_label), [*renderer.data_source.data[renderer.glyph.y]]

    def _items(self) -> Iterator[Any]:
        for legend in self.plot.legend:
            yield from legend.items


def _spoken(line: tuple[str, list[float]]) -> str:
    """The values of a line in words; empty if it has none."""
    name, heights = line
    if not heights:
        return ""
    return f"{name}: {heights[0]:#.4g} at first, {heights[-1]:#.4g} at last, {max(heights):#.4g} at most."


def new_plot(x_label: str, y_label: str, height: int = HEIGHT, **more: Any) -> Any:
    """An empty plot as wide as its place. The page gives INK the colour of its own text."""
    zoom = BoxZoomTool()
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=[zoom, WheelZoomTool(), PanTool(), ResetTool()],
        toolbar_location="above",
        toolbar_inner=True,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border=4,
        styles={"clip-path": CLIP},
        **more,
    )
    plot.toolbar.logo, plot.toolbar.autohide, plot.toolbar.active_drag = None, True, zoom
    for axis, label in ((plot.xaxis[0], x_label), (plot.yaxis[0], y_label)):
        axis.axis_label = label
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = LABEL
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_color = axis.major_label_text_color = INK
        axis.axis_line_color = axis.major_tick_line_color = GRID
        axis.minor_tick_line_color = None
    plot.grid.grid_line_color, plot.grid.grid_line_alpha = GRID, 0.25
    plot.xgrid.grid_line_color = None
    return plot


def add_legend(plot: Any, place: str = "above") -> None:
    """Style the legend of a plot and put it above the drawing, where it covers nothing."""
    for legend in plot.legend:
        legend.orientation, legend.location = "horizontal", "left"
        legend.ncols = "auto"
        legend.background_fill_color = legend.border_line_color = None
        legend.label_text_color, legend.label_text_font, legend.label_text_font_size = INK, FONT, LABEL
        # Four short entries fit into the width of a phone.
        legend.padding, legend.margin, legend.spacing, legend.label_standoff = 0, 2, 7, 3
        legend.glyph_width = legend.glyph_height = 10
        legend.click_policy, legend.stylesheets = "mute", [LINES]
    if plot.legend:
        plot.add_layout(plot.legend[0], place)


def add_hover(plot: Any, tips: Sequence[tuple[str, str]], renderers: Sequence[Any], mode: str = "mouse") -> None:
    """Show values under the pointer."""
    plot.add_tools(HoverTool(tooltips=[*tips], renderers=[*renderers], mode=mode, visible=False))
