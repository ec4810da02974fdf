"""The process that starts the groups and servers of a hybrid training, and watches them.

The end of a group other than 0 is told to the root of group 0. Once the training has begun, its
ranks are started again, to come back with the servers' values. A server that is killed is started
again with the memory that it leaves. Both are started again `RETURNS` times. The end of group 0
ends all, and so does that of a server by itself or once more.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter

from msgspec.json import encode

from aiperf.clock import SystemClock
from aiperf.processes import describe_exit, end_sessions
from aiperf.rules.asynchrony import RETURNS
from aiperf.signals import die_with_parent, not_to_outlive
from replica.trainer.servers.lasting_state import MEMORY, new_memory
from replica.trainer.servers.protocol import Lost, Tag
from replica.trainer.servers.zeromq import ZmqMailbox
from replica.trainer.starters.groups import END, SURVIVED, Groups


def main(groups: Groups) -> int:
    """Start all, and wait for the training's end; give its exit code."""
    die_with_parent()
    watch = Watch(groups)
    # An exception, so that `end` is called: groups and servers have sessions of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        watch.start()
        return watch.wait()
    finally:
        watch.end()


class Watch:
    """The processes of one training."""

    def __init__(self, groups: Groups) -> None:
        self._places = groups.places
        self._programs = (*groups.groups, *groups.servers)
        """The programs of groups and servers by number."""
        self._memories = {number: new_memory() for number in self._places.server_numbers}
        """Open files of the servers."""
        self._losses = Counter[int]()
        self._running: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        """Numbers by process. If nobody held the objects, the next start would take their ends."""
        self._post = ZmqMailbox(self._places.starter, self._places, [0], SystemClock())

    def start(self) -> None:
        """Start servers and groups, each in a session of its own."""
        for number in (*self._memories, *range(self._places.groups)):
            self._start(number)

    def _start(self, number: int) -> None:
        program, memory = self._programs[number], self._memories.get(number)
        environment = {**os.environ, **program.environment, **not_to_outlive(program.command)}
        if memory is not None:
            # `pass_fds` keeps the number of an open file, so the child finds it by the same one.
            environment[MEMORY] = str(memory)
        files = () if memory is None else (memory,)
        process = subprocess.Popen(program.command, env=environment, pass_fds=files, start_new_session=True)
        self._running[process.pid] = number, process

    def wait(self) -> int:
        """Wait until group 0 has ended, or a server has failed."""
        while True:
            pid, status = os.wait()
            number, process = self._running.pop(pid, (None, None))
            code = os.waitstatus_to_exitcode(status)
            if process is not None:
                # Otherwise unknown to the object, since `os.wait` has taken it: it would ask for it
                # again.
                process.returncode = code
            if code == 0 and number == 0:
                return 0
            if code == 0 or number is None:
                continue
            end_sessions([pid])  # the other ranks of the group, if its starter was killed
            name = self._places.name_of(number)
            reason = f"{name} {'was' if code < 0 else 'ended with'} {describe_exit(code)}"
            self._losses[number] += 1
            again = self._losses[number] <= RETURNS
            is_server = number in self._memories
            if is_server and code < 0 and again:
                _say(f"{reason}: it goes on from its memory")
            elif is_server or number == 0:
                _say(END + reason + ("" if again else f", {RETURNS + 1} times"))
                return code if code > 0 else 128 - code
            else:
                self._post.send(encode(Lost(group=number, reason=reason)), 0, Tag.LOST)
                # Before, every group is needed: new ranks would only add failures of their own.
                if begun := self._has_begun():
                    _say(f"{SURVIVED}{number}: {reason}")
                again = again and begun
            if again:
                self._start(number)

    def _has_begun(self) -> bool:
        if self._post.look(0, Tag.BEGUN) is None:
            self._post.wait()  # it may be under way
        return self._post.look(0, Tag.BEGUN) is not None

    def end(self) -> None:
        """End what still runs."""
        self._post.close(0)
        # SIGKILL: ranks may wait for one that is gone, and hold milder signals back.
        end_sessions(list(self._running))
        with contextlib.suppress(ChildProcessError):
            while self._running:
                self._running.pop(os.wait()[0], None)


def _say(words: str) -> None:
    """Write a line into the log of the training."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(Groups.model_validate_json(sys.argv[1])))
