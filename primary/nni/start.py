"""The start of NNI's manager, its life, and experiments whose manager never started."""

import contextlib
from collections.abc import Iterator

import psutil
import requests

from aiperf.clock import Clock
from primary.nni.library import Experiment, launcher, rest

START_TIMEOUT_S = 120.0
"""Seconds from the start of NNI's manager to its first answer, then to the primary's start."""

LOOK_INTERVAL_S = 0.5

SILENT = "SILENT"
"""The state of an experiment whose manager lives and does not answer: suspended, or too busy."""

TAKEN = "port {port} is another process's: of another run, or of another command for this one; see nni.port"

MANAGER_WORD = "--trace-uncaught"
"""Word in the command line of NNI's manager, and in no other command line."""


@contextlib.contextmanager
def patient_start(clock: Clock) -> Iterator[None]:
    """Let NNI wait for its manager as long as that is starting.

    By itself it gives up after 3 s, which a busy machine needs for the start of Node.js. It takes
    any answer at the port for its manager's, and would start its experiment a second time in the
    manager of another command that was faster: of two `aiperf resume`, say. Changes NNI's module
    meanwhile; not for use in several threads.
    """

    def wait(port: int, retry: int = 0, url_prefix: str | None = None) -> None:
        late_s = clock.monotonic_s() + START_TIMEOUT_S
        while True:
            try:
                rest.get(port, "/check-status", url_prefix)
            except requests.RequestException:
                if clock.monotonic_s() > late_s or not manager_lives():
                    raise
            else:
                if _listens(port):
                    return
                if clock.monotonic_s() > late_s or not manager_lives():
                    raise RuntimeError(TAKEN.format(port=port))
            clock.pause(LOOK_INTERVAL_S)

    name = "_check_rest_server"
    original = getattr(launcher, name)
    setattr(launcher, name, wait)
    try:
        yield
    finally:
        setattr(launcher, name, original)


def manager_lives() -> bool:
    """True if a manager that this process has started lives."""
    return next(_managers(), None) is not None


def _listens(port: int) -> bool:
    """True if a manager that this process has started answers at a port."""
    for manager in _managers():
        with contextlib.suppress(psutil.Error):
            connections = manager.net_connections("tcp")
            if any(known.laddr.port == port and known.status == psutil.CONN_LISTEN for known in connections):
                return True
    return False


def _managers() -> Iterator[psutil.Process]:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.status() != psutil.STATUS_ZOMBIE and MANAGER_WORD in child.cmdline():
                yield child


def state_of(experiment: Experiment) -> str | None:
    """The state of an experiment in NNI's terms, or `SILENT`; None if its manager has ended."""
    try:
        return str(experiment.get_status())
    except requests.RequestException:
        return SILENT if manager_lives() else None


def is_kept(experiment: str) -> bool:
    """True if NNI has kept an experiment so that it can be resumed.

    It has not if its manager was killed, or did not start, before the experiment was in NNI's list
    and database.
    """
    try:
        Experiment(None, id=experiment).load_checkpoint()
    except Exception:  # whatever its database, its files and its lists raise
        return False
    return True
