"""The documentation as a site: built, and its pages read."""

import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from tests.support.folders import DOCS, ROOT

OWN: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
"""What a browser loads by itself to show a page: tag and attribute."""


@dataclass
class Page(HTMLParser):
    """The links, the own files and the anchors of a page."""

    file: Path
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in OWN and OWN[tag] in values:
            self.loaded.append(values[OWN[tag]])
        self.anchors |= {values[name] for name in ("id", "name") if name in values and (name == "id" or tag == "a")}


def build_site(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make site` does."""
    words = ("--quiet", "--fail-on-warning", "--nitpicky", "--keep-going", "-d", folder / "doctrees", "-c", DOCS, ROOT)
    command = [sys.executable, "-m", "sphinx", *map(str, words), str(folder / "site")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
