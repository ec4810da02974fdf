"""Memory that is short: which processes die first."""

import contextlib
from pathlib import Path

RANKS_FIRST = 500
"""Out of memory, ranks go before the agent and the primary: the run survives a rank."""


def prefer_oom_kill(process: int) -> None:
    """Make the kernel kill this process, and those it starts, before others."""
    # Raising the value needs no privilege, lowering it does (proc(5), oom_score_adj).
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/oom_score_adj").write_text(f"{RANKS_FIRST}\n", encoding="ascii")
