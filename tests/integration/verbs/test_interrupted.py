"""Every verb that works for long: a sign of life on a terminal, and one line after Ctrl-C."""

import gc
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_core import SchemaError

from aiperf.__main__ import start
from aiperf.cli.verbs import VERBS
from tests.faults.interruptions import COMMANDS
from tests.support.folders import ROOT
from tests.support.hand_made import HandMadeRun, aiperf

MACHINE = ROOT / "examples" / "machines" / "h100-8x8.toml"


CALLED_FIRST = {
    "run": "primary.cli.read_run_options",
    "resume": "primary.cli.open_run",
    "scale": "primary.scaling.cli.run_series",
    "dataset": "workloads.datasets.cli._synthesize",
    "dashboard": "dashboard.server.serve",
    "report": "analysis.verbs.report.read_result_data",
    "status": "analysis.verbs.status.status_at_a_glance",
    "verify": "analysis.verbs.report.examine",
    "check": "referee.check.check_result",
    "rank": "referee.rank.execute_rank",
    "compare": "analysis.verbs.results.read_result",
    "accept": "analysis.verbs.acceptance.read_result",
    "trend": "analysis.verbs.trend.try_facts",
    "list": "referee.listing.site.build",
    "export": "analysis.verbs.submission.read_now",
    "audit": "referee.audit.cli.opened_run",
    "rehearse": "rehearsal.verbs.rehearse.conduct",
    "predict": "rehearsal.verbs.predict.predict",
    "doctor": "primary.doctor.cli.diagnose",
    "screen": "primary.screening.cli.screen",
    "nodes": "primary.nodes.cli.probe",
    "micro": "replica.measure.micro.cli._stacks",
    "profile": "replica.measure.profile.cli.profile_step",
}
"""For each verb that may work for long, a function that is replaced by one that takes for ever."""

AT_ONCE = {"stop", "store", "ops", "search", "hpo", "slurm", "config", "completion"}
"""Verbs whose own work is short; they are inside of the same `waiting`."""

WORDS: dict[str, tuple[str, ...]] = {
    "run": ("--preset", "quick", "--output", "OUT"),
    "scale": ("--preset", "quick", "--output", "OUT"),
    "dataset": ("synthesize", "OUT"),
    "audit": ("RUN", "--nonce", "a word"),
    "compare": ("RUN", "RUN"),
    "accept": ("RUN", "--baseline", "RUN"),
    "list": ("build", "RUN", "--output", "OUT"),
    "nodes": ("probe", "node[1-2]"),
    "micro": ("--quick",),
    "profile": ("--batch-size", "2", "--steps", "1"),
    "rehearse": ("--machine", str(MACHINE), "--replicas", "2", "--duration", "20m", "--output", "OUT"),
    "predict": ("--machine", str(MACHINE), "--replicas", "2", "--duration", "20m"),
    "doctor": ("--preset", "quick", "--output", "OUT"),
    "screen": ("--preset", "quick", "--output", "OUT"),
}
"""Words after the verb; RUN is a run directory, OUT one that is not there."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("interrupted") / "run"
    HandMadeRun(root).at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1).end(100)
    return root


def program(verb: str, run: Path) -> list[str]:
    """The verb with its first work replaced by an endless one."""
    words = [
        str(run) if word == "RUN" else str(run.parent / "out") if word == "OUT" else word
        for word in WORDS.get(verb, ("RUN",))
    ]
    module, _, name = CALLED_FIRST[verb].rpartition(".")
    script = f"""
import ctypes, importlib, signal, sys
sleep = ctypes.PyDLL(None).sleep  # which keeps the interpreter's lock
signal.signal(signal.SIGINT, signal.default_int_handler)
def endless(*_, **__):
    # As while a library is loaded: one call, in which no line of Python runs, also none of a signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {{signal.SIGINT}})
    print("begun", file=sys.stderr, flush=True)
    while True:
        sleep(600)
setattr(importlib.import_module({module!r}), {name!r}, endless)
from aiperf.__main__ import main
sys.exit(main({[verb, *words]!r}))
"""
    return [sys.executable, "-c", script]


@pytest.mark.parametrize("verb", CALLED_FIRST)
def test_a_terminal_sees_that_a_verb_works_and_ctrl_c_ends_it_in_one_line(verb: str, run: Path) -> None:
    ours, its = pty.openpty()
    with subprocess.Popen(program(verb, run), stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        try:
            shown = b""
            while not re.search(rf"begun.*aiperf {verb}: .*\d s".encode(), shown, re.DOTALL):
                more = read(ours)
                assert more, shown.decode()
                shown += more
            process.send_signal(signal.SIGINT)
            while more := read(ours):
                shown += more
            assert process.wait(timeout=240) == 1
        finally:
            process.kill()
            os.close(ours)
    last = shown.decode().rpartition("\x1b[K")[2].strip().splitlines()
    assert len(last) == 1, shown.decode()
    assert re.match(r"\S*aiperf: interrupted; ", last[0])
    assert b"Traceback" not in shown


def read(descriptor: int) -> bytes:
    """What is printed next; empty at the end."""
    select.select([descriptor], [], [], 240)
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


def test_results_follow_without_a_sign_in_between(run: Path) -> None:
    shown = aiperf("report", run, environment={"TERM": "dumb"})
    assert "working" not in shown.stdout + shown.stderr


def test_ctrl_c_while_the_command_is_imported_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        "from importlib.machinery import PathFinder\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "find = PathFinder.find_spec\n"
        "def interrupt(name, *more):\n"
        "    if name == 'aiperf.cli.command':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return find(name, *more)\n"
        "PathFinder.find_spec = interrupt\n"
    )
    for command in ([f"{Path(sys.executable).parent}/aiperf"], [sys.executable, "-m", "aiperf"]):
        words, environment = [*command, "config", "show"], {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def a_class() -> None:
    """Ctrl-C while the attributes of a class learn their names, which Python 3.11 wraps."""

    class Attribute:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    type("Made", (), {"attribute": Attribute()})


def a_model() -> None:
    """Ctrl-C while pydantic makes a model: its error has only the text of the cause."""
    raise SchemaError(
        'Error building "model" validator:\n  SchemaError: Error building "function-after" validator:\n'
        "  KeyboardInterrupt: "
    )


@pytest.mark.parametrize("imports", [a_class, a_model])
def test_ctrl_c_that_a_library_wraps_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], imports: Callable[[], None]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("aiperf.__main__.foreign", list)
    monkeypatch.setattr("aiperf.__main__.copied", list)
    monkeypatch.setattr("aiperf.__main__.main", imports)
    try:
        assert start() == 1
    finally:
        gc.unfreeze()
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "aiperf: interrupted; nothing was changed\n"


def test_an_error_that_ctrl_c_has_no_part_in_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise ValueError("a defect")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("aiperf.__main__.foreign", list)
    monkeypatch.setattr("aiperf.__main__.copied", list)
    monkeypatch.setattr("aiperf.__main__.main", fails)
    try:
        with pytest.raises(ValueError, match="a defect"):
            start()
    finally:
        gc.unfreeze()
        signal.signal(signal.SIGINT, before)


def test_these_tests_and_the_campaign_of_interruptions_know_every_verb() -> None:
    assert set(COMMANDS) == set(VERBS) == set(CALLED_FIRST) | AT_ONCE
