"""A real Ray cluster of several nodes on this machine, in processes of its own."""

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import ask, family

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # A node that refuses connections is dead after ten seconds, and one that is only slow is not.
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "20",
    "RAY_worker_register_timeout_seconds": "240",
}
NODES_TIMEOUT_S = 240
ATTEMPTS = 3
OBJECT_STORE_BYTES = 80 * 1024 * 1024  # the least that Ray accepts


@dataclass
class RayNodes:
    """A cluster, and the process that holds it."""

    address: str
    process: subprocess.Popen[str]
    folder: Path

    @property
    def settings(self) -> dict[str, object]:
        """Of a run on the cluster, which has time: other tests keep the machine busy."""
        return {"ray.address": self.address, "ray.wait": 240.0}

    def add(self) -> str:
        """A further node; its id. Waits until Ray knows how many nodes are alive."""
        return self._ask("add")

    def fail(self) -> str:
        """The sudden death of the node that was added last; its id."""
        return self._ask("fail")

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        if not (answer := self.process.stdout.readline().strip()):
            raise RuntimeError((self.folder / "log").read_text())
        return answer

    def stop(self) -> None:
        """End all nodes."""
        members = family(self.process.pid)
        try:
            self.process.communicate(timeout=NODES_TIMEOUT_S)
        finally:
            for member in members:
                ask(member.kill, None)


def start_ray(folder: Path, nodes: int) -> RayNodes:
    """Start a cluster. `folder` is a short path, since the names of sockets are limited."""
    for _ in range(ATTEMPTS - 1):
        # Ray gives a node thirty seconds to start, which a busy machine may need.
        with contextlib.suppress(RuntimeError):
            return _start(folder, nodes)
    return _start(folder, nodes)


def _start(folder: Path, nodes: int) -> RayNodes:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.hosts.ray_cluster", str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, **QUIET, "RAY_TMPDIR": str(folder)},
        )
    found = RayNodes("", process, folder)
    try:
        found.address = found._ask("address")
    except BaseException:
        found.stop()
        raise
    return found


def _hold(nodes: int) -> None:
    """Serve the requests of the test, then end the cluster."""
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    one = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**one, "include_dashboard": False})
    added = [cluster.add_node(**one) for _ in range(nodes - 1)]
    for line in sys.stdin:
        answer = cluster.address
        if line == "add\n":
            added.append(cluster.add_node(**one))
            cluster.wait_for_nodes(NODES_TIMEOUT_S)
            answer = added[-1].node_id
        elif line == "fail\n":
            cluster.remove_node(node := added.pop(), allow_graceful=False)
            answer = node.node_id
        print(answer, file=answers, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    _hold(int(sys.argv[1]))
