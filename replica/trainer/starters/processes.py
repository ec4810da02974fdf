"""Ranks started as plain processes of this node, for frameworks that need no launcher.

They find their numbers in the variables that torchrun uses.
"""

import os
import signal
import subprocess
import sys

from aiperf.processes import python_module
from aiperf.ranks import LOCAL_RANK, RANK, SIZE
from aiperf.signals import die_with_parent, not_to_outlive
from replica.trainer.starters.contract import RankRequest


def start_processes(request: RankRequest) -> list[str]:
    """Start the ranks from one parent. Raises ValueError for ranks on other nodes."""
    if len(request.hosts) > 1:
        raise ValueError(f"the starter 'processes' starts ranks of one node, not of {len(request.hosts)}")
    return [*python_module("replica.trainer.starters.processes", str(request.ranks)), *request.command]


def main(ranks: int, command: list[str]) -> int:
    """Wait for the ranks; the first that fails ends the others, and its exit code is given."""
    die_with_parent()
    running: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(ranks):
        numbers = {RANK: str(rank), LOCAL_RANK: str(rank), SIZE: str(ranks)}
        process = subprocess.Popen(command, env={**os.environ, **numbers, **not_to_outlive(command)})
        running[process.pid] = process
    failed = 0
    while running:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        running.pop(pid, None)
        if code != 0 and not failed:
            # As a shell gives the end by a signal: 128 and its number.
            failed = code if code > 0 else 128 - code
            # SIGKILL: the others may wait in an all-reduce for the rank that is gone, and ranks
            # hold milder signals back (`hold_warnings`).
            for other in running:
                os.kill(other, signal.SIGKILL)
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
