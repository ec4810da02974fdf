"""Folders of the repository, and one of this process."""

import atexit
import shutil
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
DOCS = ROOT / "docs"


def until_the_end(name: str) -> Path:
    """A new temporary folder, which goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix=f"aiperf-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
