"""Ranks started by `horovodrun` with Gloo, which reaches other nodes by ssh."""

from __future__ import annotations

import sys
from pathlib import Path

from replica.trainer.starters.contract import RankRequest, refuse_servers


def start_with_horovodrun(request: RankRequest) -> list[str]:
    """Start with Horovod's own launcher, from the environment of the running Python."""
    refuse_servers("horovodrun", request)
    hosts = request.hosts or ("localhost",)
    interface = request.interface or (None if request.hosts else "lo")
    slots = ",".join(f"{host}:{request.ranks_per_host}" for host in hosts)
    return [
        str(Path(sys.executable).parent / "horovodrun"),
        "--gloo",
        "-np", str(request.ranks),
        "-H", slots,
        *(("--network-interfaces", interface) if interface else ()),
        *request.command,
    ]  # fmt: skip
