"""Ray's own reasons, in full, with the remedies that are known to fit; accelerators by any name."""

from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.errors import LaunchError, UsageError
from primary.launchers import make_launcher
from primary.launchers.ray import cluster
from primary.launchers.ray.nodes import Node, workers

VERSIONS = """Version mismatch: The cluster was started with:
    Ray: 2.49.0
    Python: 3.11.2
This process on node 10.0.0.2 was started with:
    Ray: 2.60.0
    Python: 3.12.1
"""


def refusal(monkeypatch: pytest.MonkeyPatch, error: Exception) -> str:
    """What is said of a cluster that answers with an error."""

    def fail(**_words: Any) -> None:
        raise error

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(LaunchError) as caught:
        cluster.connect("head")
    return str(caught.value)


def test_versions_that_differ_are_both_named_with_the_remedy_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(monkeypatch, RuntimeError(VERSIONS))
    assert all(version in said for version in ("2.49.0", "3.11.2", "2.60.0", "3.12.1"))
    assert "run the primary with the cluster's versions" in said
    assert "ray start" not in said


def test_a_remedy_is_given_only_if_it_is_known_to_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert "ray start --head" in refusal(monkeypatch, ConnectionError("Could not find any running Ray instance."))
    assert "ray start --head" in refusal(monkeypatch, RuntimeError("Failed to connect to GCS."))
    assert refusal(monkeypatch, ValueError("no room in /dev/shm\nuse less")).endswith("no room in /dev/shm; use less")
    (tmp_path / "token").write_text("of another cluster")
    said = refusal(monkeypatch, RuntimeError("Failed to connect to GCS."))
    assert f"does the cluster know the token in {tmp_path / 'token'}?" in said


def test_the_cause_of_an_actors_death_is_kept_in_full() -> None:
    killed = "The actor died unexpectedly.\n\tclass_name: NodeActor\nWorker exit detail: Task was killed due to memory"
    assert cluster.reason_of(RayError(killed)).endswith(
        "class_name: NodeActor; Worker exit detail: Task was killed due to memory"
    )
    assert len(cluster.reason_of(RayError("x" * 10**5))) < 3000
    for module, missing in (("aiperf", True), ("primary.launchers", True), ("torch", False), ("aiperf_tools", False)):
        said = cluster.reason_of(RayError(f"ModuleNotFoundError: No module named '{module}'"))
        assert said.startswith("AIPerf is not installed for Ray's Python there") == missing
        assert f"No module named '{module}'" in said


def row(state: str, address: str = "", node: str = "a") -> dict[str, Any]:
    return {
        "State": state,
        "Address": {"IPAddress": address, "NodeID": node},
        "Pid": 7,
        "JobID": "02",
        "ActorClassName": "Trainer",
    }


def test_an_actor_that_does_not_run_is_pending_or_created_or_lacks_resources() -> None:
    node, waiting = Node("a", "gpu1", 8, 8), row("PENDING_CREATION")
    busy = cluster.state_in_words(waiting, [waiting, row("ALIVE", "10.0.0.1")], node)
    assert busy == "other work holds CPUs or GPUs of Ray node gpu1 (id a): Trainer of job 02"
    elsewhere = cluster.state_in_words(waiting, [waiting, row("ALIVE", "10.0.0.2", "b"), row("DEAD")], node)
    assert elsewhere.startswith("its actor is pending: Ray node gpu1 (id a) lacks free resources")
    created = cluster.state_in_words(row("PENDING_CREATION", "10.0.0.1"), [row("ALIVE", "10.0.0.1")], node)
    assert created == "Ray is still creating its actor there (process 7); is the file system slow?"


def test_accelerators_of_any_name_are_found_and_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(name: str, **resources: float) -> dict[str, Any]:
        return {"NodeID": name, "Alive": True, "NodeManagerAddress": name, "Resources": {"CPU": 4.0, **resources}}

    found = [node("head"), node("tpu", TPU=4.0), node("npu", NPU=8.0), node("own", own_chip=2.0)]
    monkeypatch.setattr(ray, "nodes", lambda: found)
    assert [(each.id, each.others) for each in workers(cluster.find_nodes())] == [
        ("npu", (("NPU", 8.0),)),
        ("tpu", (("TPU", 4.0),)),
    ]
    assert [each.id for each in workers(cluster.find_nodes("own_chip"))] == ["npu", "own", "tpu"]
    claimed: dict[str, Any] = {}

    class Remote:
        def options(self, **words: Any) -> Any:
            claimed.update(words)
            return self

        def remote(self) -> None:
            return None

    monkeypatch.setattr(ray, "remote", lambda _actor: Remote())
    cluster.HeldNode(Node("ab" * 28, "tpu", 4, 0, (("TPU", 4.0),)))
    assert (claimed["num_cpus"], claimed["num_gpus"], claimed["resources"]) == (4, 0, {"TPU": 4.0})


def test_a_variable_that_would_start_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("local", "ray://head:10001"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UsageError, match=f"RAY_ADDRESS is '{address}': 'auto' or HOST:PORT is allowed"):
            make_launcher(load_config(overrides={"run.launcher": "ray"}), SystemClock())
