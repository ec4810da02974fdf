"""`aiperf screen` on real hosts: measured by real processes, with two that are broken."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import psutil
import pytest

from aiperf.cli.command import write_output
from aiperf.config.settings import load_config
from aiperf.host import this_host
from aiperf.screening.fabric import typical_fit
from aiperf.screening.messages import Collective, Exchanged, Listening, Meet
from aiperf.screening.outcome import FILE, read_outcome, write_outcome
from rehearsal.machine.file import read_machine
from replica.agent.screen.devices import Device
from replica.agent.screen.fabric import Fabric
from tests.support.folders import ROOT
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.hosts.sshd import Hosts
from tests.support.nodes.imitated import imitate_devices
from tests.support.nodes.screened import screened
from tests.support.processes import family
from tests.support.runs import AT_RANDOM, report
from tests.support.trainings.installed import need_frameworks

LIMIT_S = 560
"""Each good node loads PyTorch once."""

OPTIONS = ("--preset", "quick", "--quick", "--set", "micro.stack=torch", "--devices", "cpu")
MEASURED = {"matmul_32", "triad", "conv_forward", "conv_input", "conv_weights", "jpeg"}

FAULTY_PYTHON = """
import os, sys, time

words = sys.orig_argv
if "replica.agent.screen" in words:
    replica = words[words.index("--replica") + 1]
    if replica == "1":
        os.write(1, b'{"type":"sheets of paper"}\\n')
        time.sleep(3600)
    if replica == "2":
        os.write(2, b"Input/output error\\n")
        os._exit(7)
"""
"""The program on replica 1 prints nonsense and stays, that on replica 2 dies."""


@pytest.mark.timeout(LIMIT_S + 40)
def test_broken_nodes_cost_their_own_lines_and_the_others_are_measured(ssh_hosts: Hosts, tmp_path: Path) -> None:
    need_frameworks("torch")
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "sitecustomize.py").write_text(FAULTY_PYTHON)
    path = f'export PYTHONPATH="{tmp_path}/python:{":".join(sys.path)}"'
    settings = {"environment.activate": json.dumps(path), "environment.python": json.dumps(sys.executable)}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    result = aiperf(
        "screen",
        *OPTIONS,
        "--launcher",
        "ssh",
        "--replicas",
        3,
        *ssh_hosts.overrides(),
        *words,
        "--output",
        tmp_path / "screened",
        "--format",
        "json",
        timeout_s=LIMIT_S,
    )
    assert result.returncode == 4, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    outcome = read_outcome(tmp_path / "screened")
    assert len(document["nodes"]) == len(outcome.nodes) == 3
    assert outcome.bad_nodes == outcome.hosts == ("h1", "h2")
    good, nonsense, dead = outcome.nodes
    values = {row.measure: row.value for row in good.sheets[0].rows if row.value is not None}
    assert values.keys() - {"matmul_16"} == MEASURED, good.sheets
    assert min(values.values()) > 0
    assert "no message of the protocol" in (nonsense.lost or ""), nonsense.lost
    assert "Input/output error" in (dead.lost or ""), dead.lost
    assert any("cannot be compared with each other" in remark for remark in outcome.remarks)
    names = tmp_path / "screened" / "bad-nodes.txt"
    assert names.read_text() == "h1\nh2\n"
    assert {path.name for path in names.parent.iterdir()} == {"screen.json", names.name}, "no scratch is left"


@pytest.mark.timeout(LIMIT_S + 60)
def test_nodes_exchange_tensors_and_a_rehearsal_takes_their_all_reduce(tmp_path: Path) -> None:
    need_frameworks("torch")
    screened = tmp_path / "screened"
    result = aiperf(
        "screen",
        *imitate_devices(tmp_path / "python"),
        "--preset",
        "quick",
        "--launcher",
        "local",
        "--replicas",
        3,
        "--fabric",
        "--storage",
        "--output",
        screened,
        "--html",
        tmp_path / "page.html",
        timeout_s=LIMIT_S,
    )
    assert result.returncode in (0, 4), result.stderr  # a busy machine may be slow for one of them
    outcome = read_outcome(screened)
    first = [meeting for meeting in outcome.meetings if meeting.number == 0]
    assert [len(meeting.nodes) for meeting in first] == [2, 2, 2, 3]
    assert [meeting.problem for meeting in first] == [None] * 4
    assert {timed.collective for timed in first[0].times} == {"all_reduce", "all_gather", "all_to_all"}
    assert all(timed.seconds > 0 for meeting in first for timed in meeting.times)
    rates = [row.measure for row in outcome.nodes[0].sheets[0].rows if row.device == "network"]
    stored = {row.measure: row for row in outcome.nodes[1].sheets[0].rows if row.device == "storage"}
    assert stored.keys() == {"record", "run_write", "run_read", "run_opens"}, "the data set has no files"
    assert all(row.value for row in stored.values()), stored
    assert len(outcome.one_node) == 4
    assert rates == ["pair_latency", "pair_all_reduce", "pair_all_gather", "pair_all_to_all"]
    page = (tmp_path / "page.html").read_text()
    assert all(part in page for part in ("Screening of 3 nodes", "figure-devices", "figure-pairs", "pair_all_to_all"))
    planned = aiperf("predict", "--preset", "quick", "--machine", "t4-4x8", "--from", screened, "--replicas", 1,
                     "--duration", "5m", "--seeds", 1, "--output", tmp_path / "plan", timeout_s=LIMIT_S)  # fmt: skip
    assert planned.returncode == 0, planned.stderr
    assert "remark: an all-reduce of ResNet-50 over 8 ranks takes" in planned.stderr
    found = read_machine(tmp_path / "plan" / "machine.toml").all_reduce
    fit = typical_fit(outcome.meetings, inside=False)
    assert fit is not None
    assert (found.latency_s, found.bytes_per_s) == pytest.approx((fit.latency_s, fit.bytes_per_s))
    assert found.overlap == 0.5, "of the machine file"


@pytest.mark.timeout(LIMIT_S)
def test_the_accelerators_of_a_node_exchange_with_each_other(tmp_path: Path) -> None:
    """Two processes of a node, each with the device that its environment leaves it."""
    need_frameworks("torch")
    devices = tuple(Device(f"gpu{index}", "an accelerator", None, {}, 1, index) for index in range(2))
    order = Meet(rank=0, size=2, token="a secret", limit_s=120.0, quick=True, one_host=True, inside=True)
    answers: list[Listening | Exchanged] = []

    async def exchange() -> None:
        fabric = Fabric(load_config(overrides={"run.dataset": "digits"}), devices, tmp_path)
        try:
            await fabric.meet(order, answers.append)
        finally:
            await fabric.close()

    asyncio.run(exchange())
    (answer,) = answers
    assert isinstance(answer, Exchanged)
    assert answer.problem is None
    assert {timed.collective for timed in answer.times} == set(get_args(Collective))
    assert all(timed.seconds > 0 for timed in answer.times)


@pytest.mark.timeout(LIMIT_S)
def test_a_run_warns_of_nodes_that_were_bad_and_keeps_the_screening(tmp_path: Path) -> None:
    host = this_host().name()
    found = screened(tmp_path, 4, {1: {("gpu0", "triad"): 0.5}, 2: {("gpu0", "triad"): 0.6}})
    nodes = tuple(
        msgspec.structs.replace(node, host=host if node.replica == 1 else node.host, known_as=None)
        for node in found.nodes
    )
    write_output(tmp_path / "screened" / FILE, write_outcome(msgspec.structs.replace(found, nodes=nodes)))
    result = aiperf(
        "run",
        *SIMULATED,
        *AT_RANDOM,
        "--launcher",
        "local",
        "--duration",
        "3s",
        "--screen",
        tmp_path / "screened",
        "--output",
        tmp_path / "run",
    )
    assert result.returncode == 0, result.stderr
    assert f"WARNING: {host} was bad in the screening: gpu0: triad" in result.stderr
    assert "--exclude" in result.stderr
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["screened"]
    assert [bad["names"] for bad in kept["bad"]] == [[host], ["n002"]]
    notices = report(tmp_path / "run")["notices"]
    assert any(notice.startswith(f"quick screening of {found.at}: 4 nodes, 2 of them bad") for notice in notices)
    assert [notice for notice in notices if f"replica 0 ran on {host}, which the screening found bad" in notice]
    forged = (tmp_path / "run" / "run.json").read_text().replace('"nodes": 4', '"nodes": 9')
    (tmp_path / "run" / "run.json").write_text(forged)
    verified = aiperf("verify", tmp_path / "run")
    assert verified.returncode == 1
    assert "primary-1.jsonl line 1: the link is" in verified.stdout


SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from aiperf.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.timeout(LIMIT_S + 40)
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, "screen", *OPTIONS, "--launcher", "local", "--replicas", "2"]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        seen = next((line for line in process.stderr if "nodes answer" in line), "")
        assert "2 of 2 nodes answer" in seen
        started = family(process.pid)
        assert len(started) >= 3, "the programs of two nodes are at work"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 1, errors
    assert "interrupted; the nodes were left as they were" in errors
    assert psutil.wait_procs(started, timeout=60)[1] == []
    assert list(tmp_path.iterdir()) == []
