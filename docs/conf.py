"""The documentation as a site (`make site`).

The source folder is the repository's root, so that a relative link which works on a forge works in
the site: a link to a Markdown file leads to its page, a link to any other file to a copy of it.
"""

import json
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from aiperf import __version__  # noqa: E402

project = "AIPerf"
author = copyright = "The AIPerf maintainers"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "docs/index"
FOLDERS = ("containers", "docs", "examples", "packaging")
include_patterns = [
    "docs/**.md",
    "examples/list/*.md",
    *(f"{folder}/README.md" for folder in FOLDERS),
    *(f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
]
# Folders without pages are not even walked: .venv has a hundred thousand files.
exclude_patterns = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in FOLDERS]

highlight_language = "text"
myst_heading_anchors = 4
nitpicky = True
suppress_warnings = ["myst.header"]  # The changelog's headings start again below each version.

html_theme = "furo"
html_title = f"AIPerf {__version__}"
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_sourcelink = False
# Colours with a contrast of 7, which the theme's own lack.
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0a3aa8",
        "color-brand-content": "#1c41a8",
        "color-brand-visited": "#6b1f8f",
        "color-foreground-secondary": "#45474d",
        "color-foreground-muted": "#4b4f55",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8fc1ff",
        "color-brand-content": "#8fc1ff",
        "color-brand-visited": "#d9a7f5",
        "color-foreground-secondary": "#b9bdc3",
        "color-foreground-muted": "#b0b4ba",
    },
}
pygments_style = "bw"
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
# The site opens at its root, whatever the root document is called.
html_additional_pages = {"index": "to_docs.html"}
templates_path = ["templates"]


def add_contents(_: Sphinx, docname: str, source: list[str]) -> None:
    """Make the table of contents of the lists of the first page, a part for each heading."""
    if docname != root_doc:
        return
    for part in source[0].split("\n## ")[1:]:
        caption = part.partition("\n")[0]
        pages = re.findall(r"^- \[[^]]+\]\(([^)]+\.md)\)", part, re.MULTILINE)
        if pages:
            source[0] += "\n".join(["", "", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])


WITHOUT_BARRIERS = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Contents">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
    "</head>": "<style>.toc-tree a { display: inline-block; min-height: 24px; min-width: 24px; }</style></head>",
}
"""What keeps readers with a keyboard or a screen reader out, and what replaces it."""


TABLE = '<div class="table-wrapper'


def _region(number: int) -> str:
    """Attributes of a table that can be scrolled by keys."""
    return f'tabindex="0" role="region" aria-label="Table {number}"'


def remove_barriers(app: Sphinx, exception: Exception | None) -> None:
    """Mend what the theme's pages lack."""
    for file in app.outdir.rglob("*.html") if exception is None else ():
        text = file.read_text(encoding="utf-8")
        for found, better in WITHOUT_BARRIERS.items():
            text = text.replace(found, better)
        first, *tables = text.split(TABLE)
        text = first + "".join(f"<div {_region(number)} {TABLE[5:]}{rest}" for number, rest in enumerate(tables, 1))
        file.write_text(text, encoding="utf-8")


ARTICLE = re.compile(r'<article role="main".*?</article>', re.DOTALL)

INDEX = '<script src="searchindex.js'


def bring_texts_to_search(app: Sphinx, exception: Exception | None) -> None:
    """Give the search the texts of all pages in a script, for the lines around what it finds.

    It would fetch each page that it finds, which browsers refuse for files.
    """
    search = app.outdir / "search.html"
    if exception is not None or not search.is_file():
        return
    pages = {
        f"./{file.relative_to(app.outdir).as_posix()}": ARTICLE.search(file.read_text(encoding="utf-8"))
        for file in sorted(app.outdir.rglob("*.html"))
    }
    texts = json.dumps({name: found[0] for name, found in pages.items() if found})
    script = f"const texts = {texts};\nwindow.fetch = async address => new Response(texts[address] ?? '');\n"
    (app.outdir / "_static" / "texts.js").write_text(script, encoding="utf-8")
    text = search.read_text(encoding="utf-8")
    search.write_text(text.replace(INDEX, f'<script src="_static/texts.js"></script>\n{INDEX}'), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect what is ours to Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", remove_barriers)
    app.connect("build-finished", bring_texts_to_search)
