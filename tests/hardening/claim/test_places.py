"""Takers as real processes: in PID namespaces, with another boot time, and in crowds."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.errors import RunHeldError
from aiperf.run_directory.claim import Claim
from tests.support.needs import need
from tests.support.runs import wait_for

ROOT = str(Path(__file__).parents[3])
TAKES = (
    "import sys, os\n"
    "from pathlib import Path\n"
    "from aiperf.clock import SystemClock\n"
    "from aiperf.errors import RunHeldError\n"
    "from aiperf.run_directory.claim import Claim\n"
    "show = lambda text: print(text, flush=True)\n"
    "try:\n"
    "    claim = Claim.acquire(Path(sys.argv[1]), SystemClock(), show=show)\n"
    "except RunHeldError as error:\n"
    "    sys.exit(print(f'held: {error}', flush=True))\n"
    "print('mine', claim.number, os.getpid(), flush=True)\n"
    "while line := sys.stdin.readline():\n"
    "    claim.touch()\n"
    "    print('touched', flush=True)\n"
)
NEW_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@contextmanager
def taker(folder: Path, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """A process that takes the claim, and touches it at each line that it reads."""
    words = [*prefix, sys.executable, "-c", TAKES, str(folder)]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield process
        process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def touch(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert line_of(process) == "touched"


def need_namespaces() -> None:
    need("unshare")
    if subprocess.run([*NEW_NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        if os.environ.get("CI"):
            pytest.fail("this user may not make PID namespaces")
        pytest.skip("this user may not make PID namespaces; root may")


@pytest.mark.parametrize("prefixes", [((), NEW_NAMESPACE), (NEW_NAMESPACE, ()), (NEW_NAMESPACE, NEW_NAMESPACE)])
def test_a_holder_in_another_pid_namespace_is_alive_while_it_touches(
    tmp_path: Path, prefixes: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """Both may have process id 1, or none that the other one knows, on a host of one name."""
    need_namespaces()
    folder = tmp_path / "claims"
    with taker(folder, *prefixes[0]) as first:
        assert line_of(first).startswith("mine 1 ")
        with taker(folder, *prefixes[1]) as second:
            assert line_of(second).startswith("waiting up to 90 s to see whether this run's primary is alive")
            touch(first)
            assert line_of(second).startswith("held: ")


def test_a_dead_holder_in_the_own_namespace_is_seen_at_once(tmp_path: Path) -> None:
    need_namespaces()
    folder = tmp_path / "claims"
    inner = f'"$0" -c "$1" {folder} < /dev/null; "$0" -c "$1" {folder} < /dev/null'
    words = [*NEW_NAMESPACE, "sh", "-c", inner, sys.executable, TAKES]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ROOT})
    assert re.fullmatch(r"mine 1 \d+\nmine 2 \d+\n", shown.stdout), shown.stdout


def test_a_proc_of_another_namespace_is_not_believed(tmp_path: Path) -> None:
    """Without a /proc of its own a process reads of others under the ids of its namespace."""
    need_namespaces()
    folder = tmp_path / "claims"
    with taker(folder, "unshare", "--pid", "--fork", "--kill-child") as first:
        assert line_of(first).startswith("mine 1 ")
        with pytest.raises(RunHeldError):
            Claim.acquire(folder, Impatient(first))


class Impatient(SystemClock):
    """Virtual waiting, meanwhile the other process touches its claim."""

    def __init__(self, other: subprocess.Popen[str]) -> None:
        super().__init__()
        self._other = other

    def pause(self, seconds: float) -> None:
        touch(self._other)


def test_a_step_of_the_boot_time_changes_nothing(tmp_path: Path) -> None:
    """A step of the clock moves btime in /proc/stat: here for one process, by an hour."""
    need("unshare")
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or tried.returncode:
        pytest.skip(f"only root who may mount can mount another /proc/stat {tried.stderr}")
    folder = tmp_path / "claims"
    moved = tmp_path / "stat"
    text = Path("/proc/stat").read_text()
    moved.write_text(re.sub(r"(?m)^btime (\d+)$", lambda found: f"btime {int(found[1]) + 3600}", text))
    mounted = f'mount --bind {moved} /proc/stat && exec "$0" -c "$1" {folder}'
    with taker(folder) as first:
        assert line_of(first).startswith("mine 1 ")
        words = ["unshare", "--mount", "sh", "-c", mounted, sys.executable, TAKES]
        shown = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": ROOT},
        )
        assert shown.stdout.startswith("held: "), (shown.stdout, shown.stderr)
        assert "waiting" not in shown.stdout


def test_of_many_processes_that_take_a_dead_claim_one_gets_it(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    with taker(folder) as dead:
        line_of(dead)
        dead.send_signal(signal.SIGKILL)
        wait_for(lambda: dead.poll() is not None)
    script = TAKES.replace("claim = Claim", "sys.stdin.readline(); claim = Claim", 1)
    words = [sys.executable, "-c", script, str(folder)]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    crowd = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(8)
    ]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [line_of(process).split()[0] for process in crowd]
    for process in crowd:
        process.communicate()
    assert sorted(answers) == ["held:"] * 7 + ["mine"]
