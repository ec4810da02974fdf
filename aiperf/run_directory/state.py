"""The states of a run, from which every page, table, line and exit code takes its words."""

import shlex
from typing import Literal

from aiperf.run_directory.paths import RunPaths

State = Literal["starting", "running", "silent", "interrupted", "ended", "failed"]
"""starting: the primary waits for its replicas. running. silent: the primary on another node gives
no sign of life. interrupted: can be resumed in the time that is left. ended: reached its deadline
or completed its work. failed: over without that, and nothing is left to resume.
"""

IN_PROGRESS: frozenset[State] = frozenset({"starting", "running", "silent"})
"""States without a verdict: what is measured so far, and what the settings already break."""

OVER: frozenset[State] = frozenset({"ended", "failed"})
"""States that nothing changes any more."""


def next_command(state: State, paths: RunPaths) -> str:
    """The command that a user in front of this run needs next."""
    verb = "report" if state in OVER else "resume" if state in ("interrupted", "silent") else "status"
    return f"aiperf {verb} {shlex.quote(str(paths.root))}"
