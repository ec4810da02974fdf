"""What an agent and its doctor make of machines that differ from the one that runs the tests."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aiperf.examination import Examination, ExamineRequest
from aiperf.host import this_host
from aiperf.machine.node import describe_node
from aiperf.run_directory.holder import Machine
from aiperf.run_directory.micro_results import file_name
from aiperf.run_directory.paths import RunPaths
from analysis.reading.nodes import read_system
from primary.doctor.checks import nodes
from replica.agent.examine.facts import find_out
from replica.agent.share import NodeShare, share_of_node
from replica.measure.profile.settings import memory_limit
from replica.search.choices import initial_architecture, limits_of
from tests.support.hand_made import HandMadeRun
from tests.support.machines import GIB, MACHINES, imitate


@pytest.fixture(scope="module", params=sorted(MACHINES), autouse=True)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        imitate(MACHINES[request.param], tmp_path_factory.mktemp("root"), monkeypatch)
        monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
        yield str(request.param)


EXPECTED = {
    "1 core": (1, 4.0),
    "64 cores and 2 TiB": (64, 2048.0),
    "odd processors": (150, 512.0),
    "one socket of two": (32, 512.0),
    "control groups 1": (1, 3.0),
    "control groups 2": (2, 3.0),
    "ARM": (64, 256.0),
    "2 GiB free": (2, 24.0),
}
"""CPUs and GiB of memory that a run may use."""


def share(run: HandMadeRun, replicas: int = 1) -> NodeShare:
    return share_of_node(argparse.Namespace(replica=0, hosts="", share=replicas), run.config)


def test_threads_and_memory_of_ranks_are_what_the_machine_gives(machine: str, tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path / "run", {"training.trainer": "keras"})
    cpus, memory = this_host().usable_cpus(), this_host().memory().limit
    assert EXPECTED.get(machine, (cpus, memory / GIB)) == (cpus, memory / GIB)
    for replicas in (1, 2):
        found = share(run, replicas)
        assert found.ranks.cpu_threads == max(1, cpus // replicas)
        assert found.memory.size_bytes == memory // replicas
        limits = limits_of(run.config, initial_architecture(run.config), found.memory)
        assert limits.memory_bytes == memory // replicas
        assert found.memory.precision == ("mixed_bfloat16" if "avx512_bf16" in this_host().cpu_flags() else "float32")
    assert memory_limit() == this_host().memory().available <= memory


def test_records_and_the_doctor_describe_what_a_run_may_use(machine: str, tmp_path: Path) -> None:
    node = describe_node()
    host, memory = this_host(), this_host().memory()
    assert (node["cpu_count"], node["node_cpu_count"]) == (host.usable_cpus(), MACHINES[machine].cpus)
    assert (node["memory_bytes"], node["node_memory_bytes"]) == (memory.limit, MACHINES[machine].memory)
    assert (node["host"], node["cpu_model"]) == (MACHINES[machine].host, host.cpu_model())
    paths = RunPaths(tmp_path)
    paths.system.write_text(json.dumps({"0": node}))
    assert [facts.as_recorded() for facts in read_system(paths).values()] == [node]
    run = HandMadeRun(tmp_path / "run", {"training.trainer": "simulated"})
    arguments = argparse.Namespace(replica=0, hosts="", share=1)
    facts = find_out(arguments, ExamineRequest(config=run.config, folder=str(tmp_path), steps=0))
    assert facts["node"] == node
    assert facts["memory"].available == memory.available
    shown = nodes._hardware(cast(Examination, SimpleNamespace(**facts)))
    assert shown == f"{node['cpu_count']} CPUs ({node['cpu_model']}), {memory.limit / GIB:.0f} GiB of memory"


def test_files_of_a_node_bear_its_name_as_it_is(machine: str, tmp_path: Path) -> None:
    name = this_host().name()
    assert name == MACHINES[machine].host
    assert file_name(name) == f"{name}.json"
    assert Machine().host == name, "of the holder of a claim"
    assert RunPaths(tmp_path).telemetry_file(f"replica-0000-1-{name}").name == f"replica-0000-1-{name}.jsonl"
