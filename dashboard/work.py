"""Messages between server and worker: a task, and its answer."""

from pathlib import Path

from pydantic import BaseModel

from analysis.output.page.links import Links
from analysis.results.glance import RunStatus


class Task(BaseModel):
    """A run to read. Without `links`, only its status is asked for; without a run, the scripts."""

    run: Path | None = None
    links: Links | None = None


class Answer(BaseModel):
    """The state of a run, or the reason why it cannot be read."""

    status: RunStatus | None = None
    page: str = ""
    """The page of its report, with links to its scripts."""
    error: str = ""
    more: bool = False
    """True if the page follows in another answer."""
    library: str = ""
    """The script that draws charts."""
    script: str = ""
    """The script of the page."""
