"""`aiperf screen` on real hosts: measured by real processes, with two that are broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aiperf.screening.outcome import read_outcome
from tests.support.folders import ROOT
from tests.support.hand_made import aiperf
from tests.support.hosts.sshd import Hosts, start_hosts
from tests.support.processes import family

LIMIT_S = 560
"""Each good node loads PyTorch once."""

OPTIONS = ("--preset", "quick", "--quick", "--set", "micro.stack=torch", "--devices", "cpu")
MEASURED = {"matmul_32", "triad", "conv_forward", "conv_input", "conv_weights", "jpeg"}

NONSENSE = """echo 'Welcome to h2'; echo '{"type":"sheets of paper"}'; exec cat >/dev/null"""
DEAD = "echo 'bash: python: Input/output error' >&2; exit 7"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    found = start_hosts(tmp_path_factory.mktemp("screened") / "hosts", 4, ("", "", NONSENSE, DEAD))
    yield found
    found.stop()


@pytest.mark.timeout(LIMIT_S + 40)
def test_broken_nodes_cost_their_own_lines_and_the_others_are_measured(hosts: Hosts, tmp_path: Path) -> None:
    result = aiperf("screen", *OPTIONS, "--launcher", "ssh", "--replicas", 4, *hosts.overrides(),
                    "--output", tmp_path / "screened", "--format", "json", timeout_s=LIMIT_S)  # fmt: skip
    assert result.returncode == 4, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    outcome = read_outcome(tmp_path / "screened")
    assert len(document["nodes"]) == len(outcome.nodes) == 4
    assert outcome.bad_nodes == outcome.hosts == ("h2", "h3")
    good, other, nonsense, dead = outcome.nodes
    for node in (good, other):
        values = {row.measure: row.value for row in node.sheets[0].rows if row.value is not None}
        assert values.keys() - {"matmul_16"} == MEASURED, node.sheets
        assert min(values.values()) > 0
    assert "no message of the protocol" in (nonsense.lost or "")
    assert "exit code 7" in (dead.lost or "")
    assert "Input/output error" in (dead.lost or "")
    assert any("cannot be compared with each other" in remark for remark in outcome.remarks)
    assert [path.name for path in (tmp_path / "screened").iterdir()] == ["screen.json"], "no scratch is left"


SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from aiperf.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.timeout(LIMIT_S + 40)
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, "screen", *OPTIONS, "--launcher", "local", "--replicas", "2"]
    with subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # fmt: skip
        assert process.stderr is not None
        assert "2 of 2 nodes answer" in process.stderr.readline()
        started = family(process.pid)
        assert len(started) >= 3, "the programs of two nodes are at work"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGINT, errors
    assert psutil.wait_procs(started, timeout=60)[1] == []
    assert list(tmp_path.iterdir()) == []
