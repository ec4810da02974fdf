"""The scripts of a page that is served or part of a site: addresses in place of their text."""

from pydantic import BaseModel

from analysis.output.figures.style import INK
from analysis.output.pages import render


class Links(BaseModel):
    """The addresses of the library that draws the charts, and of the page's own script."""

    library: str
    script: str
    list: str = ""
    """The page that leads to this one; none without."""


def page_script() -> str:
    """The page's own script as one statement; `matchMedia` is the browser's, or the caller's."""
    return f'{{const INK = "{INK}";\n{render("report.js")}}}\n'
