"""The relay on a replica's node: runs the replica and carries its lines, whatever started it.

`task.py` writes a copy of this file with a call of `main` at its end, which the starter runs. So it
needs the standard library only, of Python 3.6 or later, and nothing installed on the node. The
replica ends with its connection: ending a starter does not reliably end what it started elsewhere.
"""

import contextlib
import hashlib
import hmac
import os
import queue
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, BinaryIO

BEGINNING = b"aiperf relay begins\n"
"""Ends what the node's shell may print before."""

OUTPUT, EXIT = b"o", b"x"
INPUT, TERMINATE = b"i", b"t"
"""Kinds of frames: a header line of kind and length, then the payload."""

LOST_GRACE_S = 10.0
"""Seconds for a replica whose connection has ended: it records its last facts."""

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals by which schedulers warn, as `aiperf.signals` has them: the first one ends nothing."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *WARNINGS[1:])
"""Signals by which a starter or its scheduler ends a task."""

ATTEMPTS, PAUSE_S, GREETING_S = 10, 1.0, 10.0
STRAY_S = 1.0
CHUNK = 65536
SILENCE_S = 60
NO_PROGRAM = 127

DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
)
"""Variables with the accelerators of a job on one host."""

OF_THE_NODE = (*DEVICES, "HOSTNAME")
OF_THE_SCHEDULER = ("PBS_", "LSB_", "LS_", "SGE_", "PE_", "FLUX_", "PMI")
"""Variables of which the starter's values count, not the primary's."""


def proof(secret: str, role: bytes, first: bytes, second: bytes) -> bytes:
    """Shows that a side knows the secret; both sides choose a part of what is signed."""
    return hmac.new(secret.encode(), b" ".join((role, first, second)), hashlib.sha256).hexdigest().encode()


class Link:
    """Frames to and from the primary. Raises OSError, ValueError or EOFError once it is broken."""

    def __init__(self, source: BinaryIO, target: int) -> None:
        self._source = source
        self._target = target
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Write all of it."""
        with self._lock:
            while data:
                # A pipe or socket may take a part of the data (write(2)).
                data = data[os.write(self._target, data) :]

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame."""
        self.write(kind + b" %d\n" % len(payload) + payload)

    def receive(self) -> "tuple[bytes, bytes]":
        """The next frame."""
        kind, length = self._source.readline(64).split()
        payload = self._source.read(int(length))
        if len(payload) < int(length):
            raise EOFError
        return kind, payload


class Replica:
    """The replica in a session of its own, and the threads that serve its pipes."""

    def __init__(self, link: Link, process: "subprocess.Popen[bytes]") -> None:
        self._link = link
        self._process = process
        self._input: Any = queue.Queue()
        self._ended = threading.Event()

    def serve(self) -> int:
        """Serve it to its end; its exit code, or minus the signal that ended it."""
        output = threading.Thread(target=self._pass_output, daemon=True)
        # After the start of the replica, which would inherit the mask; before that of the threads.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        output.start()
        for work in (self._obey, self._feed, self._heed):
            threading.Thread(target=work, daemon=True).start()
        code = self._process.wait()
        self._ended.set()
        # Also after an orderly end: children that are left would hold the output open.
        kill_session(self._process.pid)
        output.join()
        return code

    def terminate(self, grace_s: float) -> None:
        """Ask the replica to end, and kill what is left of it after the grace."""
        self._input.put(None)
        if self._ended.is_set():
            return
        with contextlib.suppress(OSError):
            # The replica leads a session, so its group has what it started, unless that left the
            # group.
            os.killpg(self._process.pid, signal.SIGTERM)
        timer = threading.Timer(grace_s, kill_session, [self._process.pid])
        timer.daemon = True
        timer.start()

    def _obey(self) -> None:
        try:
            while True:
                kind, payload = self._link.receive()
                if kind == INPUT:
                    self._input.put(payload)
                elif kind == TERMINATE:
                    self.terminate(float(payload))
        except (OSError, ValueError, EOFError):
            self.terminate(LOST_GRACE_S)

    def _heed(self) -> None:
        while signal.sigwait(ENDING):
            self.terminate(LOST_GRACE_S)

    def _feed(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            for payload in iter(self._input.get, None):
                self._process.stdin.write(payload)
                self._process.stdin.flush()
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _pass_output(self) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with contextlib.suppress(OSError):
            while True:
                if select.select([descriptor], [], [], STRAY_S)[0]:
                    data = os.read(descriptor, CHUNK)
                    if not data:
                        return
                    self._link.send(OUTPUT, data)
                elif self._ended.is_set():
                    return  # a process in another session holds the pipe open


def kill_session(leader: int) -> None:
    """Kill every process of a session, also those in groups of their own."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else [str(leader)]:  # noqa: PTH112, PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(name)) == leader:
                    os.kill(int(name), signal.SIGKILL)


def merged(task: "dict[str, Any]", node: "dict[str, str]") -> "dict[str, str]":
    """The primary's environment, but for what only the node and its starter can know.

    A starter's bare shell on the primary's own host lacks the accelerators that the job has there.
    """
    ours = [name for name in DEVICES if task.get("own_host") and name not in node]
    kept = {
        name: value
        for name, value in task["environment"].items()
        if name in ours or (name not in OF_THE_NODE and not (name in node and name.startswith(OF_THE_SCHEDULER)))
    }
    if not os.path.isdir(kept.get("TMPDIR", "/")):  # noqa: PTH112
        del kept["TMPDIR"]
    return {**node, **kept, **task["variables"]}


def unlimited(task: "dict[str, Any]", node: "dict[str, str]") -> str:
    """A warning if the job has some accelerators of the primary's host, and none is named here."""
    limits = [name for name in DEVICES if name in task["environment"]]
    if task.get("own_host") or not limits or any(name in node for name in DEVICES):
        return ""
    return (
        "warning: the job has {}={} on the primary's host, and its starter names no accelerators here: the replica "
        "takes all of this host".format(limits[0], task["environment"][limits[0]])
    )


def connect(task: "dict[str, Any]") -> "tuple[socket.socket, BinaryIO]":
    """The connection to the primary, which has proved that it is the primary. Raises OSError."""
    reason: Exception = OSError("it has no address")
    for _ in range(ATTEMPTS):
        for host in task["addresses"]:
            try:
                with contextlib.ExitStack() as open_ones:
                    connection = socket.create_connection((host, task["port"]), timeout=GREETING_S)
                    source = open_ones.enter_context(open_ones.enter_context(connection).makefile("rb"))
                    greet(connection, source, task["secret"])
                    open_ones.pop_all()  # both sides are proved: nothing is closed
                    return connection, source
            except (OSError, ValueError) as error:
                reason = error
        threading.Event().wait(PAUSE_S)
    where = ", ".join(task["addresses"])
    raise OSError("cannot reach the primary at port {} of {}: {}".format(task["port"], where, reason))


def greet(connection: socket.socket, source: BinaryIO, secret: str) -> None:
    """Prove both sides to each other. Raises OSError or ValueError."""
    theirs, mine = source.readline(200).strip(), secrets.token_hex(16).encode()
    connection.sendall(mine + b" " + proof(secret, b"relay", theirs, mine) + b"\n")
    if not hmac.compare_digest(source.readline(200).strip(), proof(secret, b"primary", mine, theirs)):
        raise ValueError("another program answers there")
    connection.settimeout(None)
    # A node that loses its network notices it, and ends the replica.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_USER_TIMEOUT", SILENCE_S * 1000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def main(task: "dict[str, Any]") -> None:
    """Run a task; ends the process with the exit code of the replica."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WARNINGS)  # in the replica, too, until it handles them
    with contextlib.suppress(OSError):
        os.unlink(task["file"])  # noqa: PTH108
    # Frames alone go there: what else is printed to standard output, also by the replica's start,
    # goes to the log.
    target = os.dup(1)
    log = os.open(task["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    connection = None
    if task["port"] is None:
        link = Link(os.fdopen(os.dup(0), "rb"), target)
    else:
        try:
            connection, source = connect(task)
        except OSError as error:
            sys.exit(str(error))
        os.close(target)
        link = Link(source, connection.fileno())
    with contextlib.suppress(OSError):
        os.chdir(task["folder"])
    code = run(link, task, connection)
    # At its own end the interpreter fails if a thread still reads the link, whose buffer is locked.
    os._exit(code if code >= 0 else 128 - code)


def run(link: Link, task: "dict[str, Any]", connection: "socket.socket | None") -> int:
    """Start the replica, serve it, report its exit code."""
    try:
        link.write(BEGINNING)
        warning = unlimited(task, dict(os.environ))
        if warning:
            sys.stderr.write(warning + "\n")
            sys.stderr.flush()
        process = subprocess.Popen(
            task["command"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=merged(task, dict(os.environ)),
            start_new_session=True,
        )
        code = Replica(link, process).serve()
    except OSError as error:
        sys.stderr.write("cannot start replica {}: {}: {}\n".format(task["replica"], task["command"][0], error))
        sys.stderr.flush()
        code = NO_PROGRAM
    with contextlib.suppress(OSError):
        link.send(EXIT, b"%d" % code)
        if connection is not None:
            # Closing with data unread could destroy the frame on its way.
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(GREETING_S)
            while connection.recv(CHUNK):
                pass
    return code
