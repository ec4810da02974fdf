"""The process that starts the groups and servers of a hybrid training, and watches them.

The end of a group other than 0 is told to the root of group 0; that of group 0, or of a server,
ends all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from aiperf.clock import SystemClock
from aiperf.processes import describe_exit, end_sessions
from aiperf.signals import die_with_parent
from replica.trainer.servers.protocol import Lost, Tag
from replica.trainer.servers.zeromq import ZmqMailbox
from replica.trainer.starters.groups import END, Groups, Program


def main(groups: Groups) -> int:
    """Start all, and wait for the training's end; give its exit code."""
    die_with_parent()
    watch = Watch(groups)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        watch.start()
        return watch.wait()
    finally:
        watch.end()


class Watch:
    """The processes of one training."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._running: dict[int, tuple[str, int | None]] = {}
        """Names by process, and the numbers of groups; None for a server."""
        self._post = ZmqMailbox(groups.places.starter, groups.places, [0], SystemClock())

    def start(self) -> None:
        """Start servers and groups, each in a session of its own."""
        for number, program in enumerate(self._groups.servers):
            self._start(program, f"server {number}", None)
        for number, program in enumerate(self._groups.groups):
            self._start(program, f"group {number}", number)

    def _start(self, program: Program, name: str, group: int | None) -> None:
        process = subprocess.Popen(program.command, env={**os.environ, **program.environment}, start_new_session=True)
        self._running[process.pid] = name, group

    def wait(self) -> int:
        """Wait until group 0 has ended, or a server has failed."""
        while True:
            pid, status = os.wait()
            name, group = self._running.pop(pid, ("", None))
            code = os.waitstatus_to_exitcode(status)
            if code == 0 and group == 0:
                return 0
            if code == 0 or not name:
                continue
            end_sessions([pid])  # the other ranks of the group, if its starter was killed
            reason = f"{name} {'was' if code < 0 else 'ended with'} {describe_exit(code)}"
            if not group:
                sys.stderr.write(f"{END}{reason}\n")
                sys.stderr.flush()
                return code if code > 0 else 128 - code
            self._post.send_text(Lost(group=group, reason=reason).model_dump_json().encode(), 0, Tag.LOST)

    def end(self) -> None:
        """End what still runs."""
        self._post.close(0)
        # SIGKILL: ranks may wait for one that is gone, and hold milder signals back.
        end_sessions(list(self._running))
        with contextlib.suppress(ChildProcessError):
            while self._running:
                self._running.pop(os.wait()[0], None)


if __name__ == "__main__":
    sys.exit(main(Groups.model_validate_json(sys.argv[1])))
