"""The command `aiperf`, which starts no other package of that name."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    """Run the command line; exit code 3 if `aiperf` is of another package."""
    own, spec = Path(__file__).resolve().with_name("aiperf"), find_spec("aiperf")
    found = spec.origin if spec and spec.origin else "a folder without code, or nothing"
    if Path(found).resolve().parent != own:
        sys.stderr.write(
            f"aiperf: the package aiperf would be {found}, and is not AIPerf's ({own}): "
            "unset PYTHONPATH, or install AIPerf in an environment of its own (python3 -m venv FOLDER)\n"
        )
        return 3
    from aiperf.__main__ import start  # noqa: PLC0415

    return start()
