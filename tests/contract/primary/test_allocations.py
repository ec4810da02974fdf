"""One suite for every scheduler's allocations, over canned environments of its jobs."""

import os
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.errors import EnvironmentNotReadyError, UsageError
from primary.allocations import ALLOCATIONS, Allocation, allocation_of, find_allocation
from primary.launchers import make_launcher
from primary.launchers.relays.remote_starters import REMOTE_STARTERS
from primary.launchers.slurm import SlurmLauncher
from tests.support.hand_made import ManualClock
from tests.support.hosts.allocations import CANNED, Environment, enter, flux_resources, job_of

HOSTS = ("node3", "node1", "node2")

WORDS = {
    "PBS": "PBS job 123.pbs01: 3 nodes",
    "LSF": "LSF job 4711: 3 nodes, 16 CPUs each",
    "Grid Engine": "Grid Engine job 77: 3 nodes, 32 CPUs each",
    "Flux": "Flux job f2xyzABC: 3 nodes, 128 CPUs and 8 GPUs each",
    "SLURM": "SLURM job 17: 3 nodes, 64 CPUs and 8 GPUs each",
}

DAMAGED: dict[str, dict[str, tuple[Environment, str]]] = {
    "PBS": {
        "no file": ({"PBS_NODEFILE": "/no/file"}, "PBS_NODEFILE names /no/file: No such file"),
        "no variable": ({"PBS_NODEFILE": ""}, "PBS_NODEFILE is not set"),
        "empty": ({"PBS_NODEFILE": "/dev/null"}, "names /dev/null, which lists no hosts"),
    },
    "LSF": {
        "odd": ({"LSB_MCPU_HOSTS": "a 4 b"}, "LSB_MCPU_HOSTS has '' after b; expected pairs"),
        "no number": ({"LSB_MCPU_HOSTS": "a b"}, "LSB_MCPU_HOSTS has 'b' after a"),
        "no file": ({"LSB_MCPU_HOSTS": "", "LSB_DJOB_HOSTFILE": "/no/file"}, "LSB_DJOB_HOSTFILE names /no/file"),
    },
    "Grid Engine": {"no file": ({"PE_HOSTFILE": "/no/file"}, "PE_HOSTFILE names /no/file: No such file")},
    "Flux": {
        "other answer": ({"STANDIN_RESOURCES": "free 2"}, "`flux resource R` printed 'free 2': JSON is malformed"),
        "broken list": ({"STANDIN_RESOURCES": flux_resources("n[1-", {"0": (1, 0)})}, "brackets do not pair"),
        "other count": ({"STANDIN_RESOURCES": flux_resources("n[1-2]", {"0-2": (2, 0)})}, "its hosts are not 3"),
        "no flux": ({"PATH": "/no/path"}, "`flux resource R` gives no answer: .*No such file"),
    },
    "SLURM": {
        "no variable": ({"SLURM_JOB_NODELIST": ""}, "SLURM_JOB_NODELIST is not set"),
        "broken list": ({"SLURM_JOB_NODELIST": "n[1"}, "SLURM_JOB_NODELIST: host list .*brackets do not pair"),
    },
}
"""Per scheduler: changes that break its environment, and the message."""


@pytest.fixture(params=[pytest.param(name, id=name) for name in ALLOCATIONS])
def scheduler(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not {name} <= CANNED.keys() & WORDS.keys() & DAMAGED.keys():
        pytest.fail(f"scheduler {name!r} is registered, but has no canned job: see tests/support/hosts/allocations.py")
    return name


@pytest.fixture
def job(scheduler: str, tmp_path: Path) -> Environment:
    return job_of(scheduler, tmp_path, HOSTS)


def test_hosts_come_once_and_in_order(scheduler: str, job: Environment) -> None:
    found = ALLOCATIONS.load(scheduler)(job)
    assert found is not None
    assert (found.scheduler, found.hosts) == (scheduler, HOSTS)
    assert str(found) == WORDS[scheduler]
    assert find_allocation(job) == found
    assert all(found.hosts[number] == host for number, host in enumerate(dict.fromkeys(found.entries)))


def test_it_is_not_taken_for_another_schedulers(scheduler: str, job: Environment) -> None:
    assert [name for name in ALLOCATIONS if ALLOCATIONS.load(name)(job)] == [scheduler]
    assert ALLOCATIONS.load(scheduler)({"PATH": os.environ["PATH"]}) is None


def test_a_broken_environment_is_reported_with_the_variable(scheduler: str, job: Environment) -> None:
    for name, (change, message) in DAMAGED[scheduler].items():
        with pytest.raises(EnvironmentNotReadyError, match=rf"{scheduler} job \S+: .*{message}.*ssh\.hosts"):
            ALLOCATIONS.load(scheduler)({**job, **change})
            pytest.fail(name)


def test_a_starter_or_a_launcher_uses_it(scheduler: str, job: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, job)
    config = load_config(overrides={"run.dataset": "digits", "run.launcher": "scheduler", "run.replicas": 3})
    launcher = make_launcher(config, ManualClock())
    assert isinstance(launcher, SlurmLauncher) == (scheduler not in REMOTE_STARTERS)
    for replicas, settings in ((4, {}), (2, {"replica.nodes": 2})):
        small = {"run.dataset": "digits", "run.launcher": "scheduler", "run.replicas": replicas, **settings}
        with pytest.raises(UsageError, match=rf"has 3 node\(s\); {replicas} replica\(s\) need 4: ask for more"):
            make_launcher(load_config(overrides=small), ManualClock())


def test_files_with_other_lines_than_expected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("node1 8 all.q@node1 UNDEFINED\nnode2\n")
    with pytest.raises(EnvironmentNotReadyError, match="PE_HOSTFILE has the line 'node2'; expected host, slots"):
        find_allocation({"JOB_ID": "1", "PE_HOSTFILE": str(file)})
    with pytest.raises(EnvironmentNotReadyError, match=r"PBS_NODEFILE has the line 'node1 8 all.* one host name"):
        find_allocation({"PBS_JOBID": "1", "PBS_NODEFILE": str(file)})


def test_each_host_has_its_own_counts(tmp_path: Path) -> None:
    def cpus_and_gpus(environment: Environment) -> tuple[tuple[int, ...], tuple[int, ...]]:
        found = find_allocation(environment)
        assert found is not None
        return found.cpus, found.gpus

    assert cpus_and_gpus({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "a 4 b 8"}) == ((4, 8), ())
    slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-3]"}
    assert cpus_and_gpus(slurm) == ((), ())
    assert cpus_and_gpus({**slurm, "SLURM_JOB_CPUS_PER_NODE": "16(x2),8"}) == ((16, 16, 8), ())
    assert cpus_and_gpus({**slurm, "SLURM_JOB_CPUS_PER_NODE": "16"}) == ((), ()), "not of all nodes"
    assert cpus_and_gpus({**slurm, "SLURM_GPUS_PER_NODE": "a100:2,h100:4"}) == ((), (6, 6, 6))
    nodes, gpus = tmp_path / "nodes", tmp_path / "gpus"
    nodes.write_text("a-1\na-1\nb\n")
    gpus.write_text("a-1-gpu0\na-1-gpu1\nb-gpu0\nb-gpu1\n")
    torque = {"PBS_JOBID": "1", "PBS_NODEFILE": str(nodes), "PBS_GPUFILE": str(gpus)}
    assert cpus_and_gpus(torque) == ((), (2, 2))
    gpus.write_text("a-1-gpu0\na-1-gpu1\n")
    assert cpus_and_gpus(torque) == ((), (2, 0)), "b has none"
    different = flux_resources("n[1-3]", {"0": (32, 4), "1-2": (96, 8)})
    environment = {**job_of("Flux", tmp_path / "flux", ("n1",)), "STANDIN_RESOURCES": different}
    assert cpus_and_gpus(environment) == ((32, 96, 96), (4, 8, 8))
    found = find_allocation(environment)
    assert str(found) == "Flux job f2xyzABC: 3 nodes, 32 to 96 CPUs and 4 to 8 GPUs each"


def test_the_host_file_of_lsf_serves_without_the_pairs(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("b\nb\na\na\n")
    found = find_allocation({"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": str(file)})
    assert found == Allocation("LSF", "1", ("b", "a"), (2, 2))


def test_a_launch_node_of_lsf_gets_no_replica() -> None:
    environment = {"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "batch5 1 a01n01 42 a01n02 42"}
    launched = find_allocation({**environment, "CSM_ALLOCATION_ID": "8"})
    assert launched is not None
    assert (launched.hosts, launched.cpus) == (("a01n01", "a01n02"), (42, 42))
    plain = find_allocation(environment)
    assert plain is not None
    assert plain.hosts[0] == "batch5", "without a launch node every host counts"


def test_flux_inside_another_schedulers_job_comes_first(tmp_path: Path) -> None:
    both = {**job_of("SLURM", tmp_path, HOSTS), **job_of("Flux", tmp_path, ("a", "b"))}
    found = find_allocation(both)
    assert found is not None
    assert found.hosts == ("a", "b")
    task = find_allocation({**both, "FLUX_JOB_ID": "f1"})
    assert task is not None
    assert task.scheduler == "SLURM", "the instance of a task of flux run is not this job's own"


def test_outside_of_any_job_the_message_has_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    enter(monkeypatch, {})
    for launcher, words in (
        ("scheduler", 'run.launcher is "scheduler"'),
        ("ssh", "ssh.hosts is empty.*name the hosts"),
    ):
        config = load_config(overrides={"run.dataset": "digits", "run.launcher": launcher})
        with pytest.raises(UsageError, match=rf"{words}.*start the run in a job \(to check: aiperf nodes list\)"):
            make_launcher(config, ManualClock())
    for settings in ({"run.launcher": "ssh", "ssh.hosts": ["a"]}, {"run.launcher": "local"}):
        config = load_config(overrides={"run.dataset": "digits", **settings})
        assert allocation_of(config, {"PBS_JOBID": "1"}) is None, "a run with other hosts does not look"
