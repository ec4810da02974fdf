"""Charts and their library inside one file: Bokeh's script, and the charts as safe JSON.

Bokeh's Python package holds its script of 1.3 MB. Plotly's has 4.6 MB, more than a page may have;
Vega's must be bundled by a program of 33 MB, which takes seconds for each report.
"""

from collections.abc import Iterable
from functools import cache

from bokeh.embed import json_item
from bokeh.resources import Resources
from markupsafe import Markup

from analysis.output.page.plots import Chart
from analysis.output.page.trials import safe_json

LABEL, READABLE = "#26aae1", "#0a6aa1"
"""Bokeh's colour of labels in tooltips, with a contrast of 2.6 to their white, and one with 5.9."""


@cache
def library() -> Markup:
    """BokehJS as its Python package has it, without its widgets, and with READABLE for LABEL.

    No page may end its element.
    """
    raw = Resources(mode="inline", components=["bokeh"], minified=True).js_raw
    # The last piece sets the level of the log, and logs that.
    script = "\n".join(piece for piece in raw if not piece.startswith("Bokeh.set_log_level"))
    return Markup(script.replace(LABEL, READABLE).replace("</script", "<\\/script"))  # the library's own text


def charts_json(charts: Iterable[Chart]) -> Markup:
    """The charts, each with the id of the element that it is drawn in."""
    items = [json_item(chart.plot, f"plot-{chart.name}") for chart in charts]
    return Markup(safe_json(items))  # escaped
