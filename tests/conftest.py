"""Settings of all tests, how workers share them, and clusters that are started once."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from aiperf import host
from aiperf.clock import SystemClock
from aiperf.files import keep_others_from_writing
from aiperf.frameworks import use_onednn
from aiperf.machine.addresses import without_proxy
from slurm.local_cluster import LocalCluster
from tests.support.fuzz import examples, fuzzing
from tests.support.hosts.ray_cluster import RayNodes, start_ray
from tests.support.hosts.sshd import Hosts, start_hosts
from tests.support.machines import MACHINES, environment_of, environment_with_small_caches
from tests.support.needs import need

# No deadlines: machines are shared. The same examples every time, and none from a database of
# earlier failures: a red run is about the change. `make fuzz` draws others.
settings.register_profile("same", deadline=None, derandomize=True, database=None, max_examples=100)
settings.register_profile("drawn", deadline=None, max_examples=examples(100))
settings.load_profile("drawn" if fuzzing() else "same")

# Of each program that JAX compiles, tests take a few steps: most of their time is compiling.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# Nor does each of their processes look for plugins of pydantic among all installed distributions.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")

# Many tests import TensorFlow by themselves.
use_onednn()

# Browsers, portals and pages of tests are on this machine, to which a site's proxy leads nowhere.
os.environ.update(without_proxy(os.environ))

# As in an activated environment: messages name commands as `aiperf`.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

CLUSTER_NODES = 4
CLUSTER_CPUS = 16

CLUSTER_TESTS = (
    "tests/contract/primary/test_allocations.py",
    "tests/contract/primary/test_launchers.py",
    "tests/integration/clusters/",
    "tests/integration/verbs/test_doctor.py",
)
"""Tests with clusters, each of which is started once and alone."""

TOGETHER = (CLUSTER_TESTS, ("tests/contract/trainer/frameworks/",), ("tests/forgeries/",))
"""Tests of several files that one worker runs: those of each other framework share a process, and
forgeries the runs that they begin with.
"""

WAITING_TESTS = (
    *CLUSTER_TESTS,
    "tests/integration/runs/test_resume.py",
    "tests/integration/runs/test_run.py",
    "tests/hardening/nobody/",
    "tests/integration/runs/test_honest.py",
    "tests/integration/verbs/test_results.py",
    "tests/hardening/primary/",
)
"""Tests that mostly wait, for deadlines of runs that train nothing: the longest files first.

They take about a third of the time of all tests.
"""

running_clusters = ExitStack()
"""Ends what runs: an idle cluster takes a tenth of a core from all tests that follow."""


class FilesApart(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker whole files, whose tests share runs, and all that belong together to one.

    The first worker begins with tests that wait, the others with the rest: the machine has work
    while one waits.
    """

    def _split_scope(self, nodeid: str) -> str:
        groups = (tests[0] for tests in TOGETHER if nodeid.startswith(tests))
        return next(groups, nodeid.partition("::")[0])

    def _assign_work_unit(self, node: Any) -> None:
        waits = node.gateway.id == "gw0"
        own = (scope for scope in self.workqueue if waits == scope.startswith(WAITING_TESTS))
        if (first := next(own, None)) is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--machine`: imitate another machine for this process and those that tests start."""
    parser.addoption("--machine", choices=sorted(MACHINES), help="imitate a machine of tests/support/machines.py")


MEMORY_FOLDER = Path("/dev/shm")
FILES_OF_TESTS = 8 << 30
"""Bytes that tests keep at most at a time, with room to spare."""


def keep_files_in_memory() -> None:
    """Have temporary folders in memory where there is much of it.

    Each record of a run is forced to the disk, which took a quarter of the time of tests that make
    runs by hand. For root alone: of others, systemd may remove what is there when they log out.
    `PYTEST_DEBUG_TEMPROOT` names another place.
    """
    if os.getuid() or not os.access(MEMORY_FOLDER, os.W_OK) or cannot_run_programs(MEMORY_FOLDER):
        return
    if min(host.this_host().memory().available // 2, host.free_disk(MEMORY_FOLDER)) >= FILES_OF_TESTS:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))


def cannot_run_programs(folder: Path) -> bool:
    """True if scripts of a folder cannot be started, as in some containers and hardened systems."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)


def pytest_configure(config: pytest.Config) -> None:
    """Prepare this process for all tests, and imitate the machine that `--machine` names."""
    # Runs that tests make in this process are of nobody else, as those of the program.
    keep_others_from_writing()
    keep_files_in_memory()
    root = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    if config.option.basetemp is None and cannot_run_programs(root):
        raise pytest.UsageError(f"tests start scripts that they write: set TMPDIR to a folder unlike {root}, noexec")
    name = config.getoption("--machine")
    if name is None:
        return
    folder = Path(tempfile.mkdtemp(prefix="aiperf-machine-"))
    config.add_cleanup(lambda: shutil.rmtree(folder))
    os.environ.update(environment_of(MACHINES[name], folder))
    host.ROOT = folder / "root"


def pytest_report_header() -> str:
    """The machine that the tests have found: some adapt to it, some are skipped."""
    found = host.this_host()
    memory, flags = found.memory(), found.cpu_flags()
    special = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "sve") if flag in flags]
    return (
        f"machine: {found.name()}, {found.cpu_model()} ({' '.join(special) or 'no vector extensions known'}), "
        f"{found.usable_cpus()} of {found.online_cpus()} CPUs with load {found.load():.1f}, "
        f"{found.last_level_cache() / 2**20:.0f} MiB of last-level cache, "
        f"{memory.available / 2**30:.1f} of {memory.limit / 2**30:.1f} GiB of memory free"
    )


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesApart:
    """Share the tests out by file, in the order of their collection."""
    config.option.loadscopereorder = False
    return FilesApart(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, lest one worker be left with it at the end."""
    items.sort(key=lambda item: [not item.nodeid.startswith(tests) for tests in WAITING_TESTS])


BLOCKED_SIGNALS = signal.pthread_sigmask(signal.SIG_BLOCK, ())
"""Signals that the tests were started with as blocked."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Unblock signals, and end the clusters after the last test with clusters."""
    # A program that heeds warnings blocks them to its end, and programs inherit what is blocked:
    # after a test of one in this process, no warning would reach those of the next.
    signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED_SIGNALS)
    if nextitem is None or not nextitem.nodeid.startswith(CLUSTER_TESTS):
        running_clusters.close()


def pytest_sessionfinish() -> None:
    """End the clusters of tests that were interrupted."""
    running_clusters.close()


@pytest.fixture
def small_caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of the programs of this test, which find this machine with small caches."""
    environment = environment_with_small_caches(tmp_path_factory.mktemp("machine"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """A real SLURM cluster of four nodes."""
    need("slurmctld", "slurmd", "munged", "srun")
    cluster = LocalCluster(tmp_path_factory.mktemp("slurm") / "cluster", SystemClock())
    running_clusters.callback(cluster.stop)
    cluster.start(CLUSTER_NODES, CLUSTER_CPUS)
    return cluster


@pytest.fixture
def slurm(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """The cluster, for the commands of this test."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return cluster


@pytest.fixture
def allocation(slurm: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """As inside of sbatch: all nodes of the cluster."""
    shown = subprocess.run(
        ["salloc", "--no-shell", f"--nodes={CLUSTER_NODES}", "--exclusive", "--no-kill"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    job = shown.split("allocation ")[1].split()[0]
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_JOB_NODELIST", f"n[1-{CLUSTER_NODES}]")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", f"{CLUSTER_CPUS}(x{CLUSTER_NODES})")
    yield job
    subprocess.run(["scancel", job], check=True)


@pytest.fixture(scope="session")
def ssh_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts with sshd."""
    hosts = start_hosts(Path(tmp_path_factory.mktemp("ssh")) / "hosts", 3)
    yield hosts
    hosts.stop()


@pytest.fixture(scope="session")
def ray_cluster() -> RayNodes:
    """A real Ray cluster of two nodes."""
    folder = running_clusters.enter_context(tempfile.TemporaryDirectory(prefix="aiperf-ray-", dir="/tmp"))
    nodes = start_ray(Path(folder), 2)
    running_clusters.callback(nodes.stop)
    return nodes


@pytest.fixture
def ray_nodes(ray_cluster: RayNodes) -> Iterator[RayNodes]:
    """The cluster for one test."""
    _collect()
    yield ray_cluster
    _collect()


def _collect() -> None:
    """Give the nodes back that launchers of earlier tests hold, which end when they are collected.

    They are in cycles of references, which are collected some time; those of a test that failed
    are also in its traceback.
    """
    sys.last_value = sys.last_traceback = None
    gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that were repeated: each hides a race, of the test or of the program."""
    repeated = sorted({report.nodeid for report in terminalreporter.stats.get("rerun", [])})
    if repeated:
        terminalreporter.section("FAILED AT FIRST, RUN AGAIN: look into each of these", yellow=True, bold=True)
        for name in repeated:
            terminalreporter.write_line(name)
