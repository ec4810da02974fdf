"""Which Ray cluster a run joins, and which of its nodes the replicas get."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aiperf.errors import LaunchError
from primary.launchers.ray.nodes import Node, Placement, workers
from primary.launchers.ray.owners import others_cluster
from tests.support.outsiders.strangers import open_folder


def nodes(*names: str, gpus: float = 0) -> list[Node]:
    return [Node(name, name, 8, gpus) for name in names]


def taken(placement: Placement, place: int, alive: list[Node]) -> str | None:
    found = placement.take(place, alive)
    return None if found is None else found.id


def test_place_i_has_node_i_in_whatever_order_the_replicas_start() -> None:
    placement, alive = Placement(3), nodes("a", "b", "c", "spare")
    assert [taken(placement, place, alive) for place in (2, 0, 1, 0)] == ["c", "a", "b", "a"]


def test_a_lost_node_is_replaced_by_a_spare_or_a_new_one_and_never_by_one_of_another_place() -> None:
    placement, alive = Placement(2), nodes("a", "b", "c")
    assert [taken(placement, place, alive) for place in (0, 1)] == ["a", "b"]
    assert taken(placement, 0, nodes("b", "c")) == "c"
    assert taken(placement, 1, nodes("c")) is None
    assert taken(placement, 1, nodes("c", "new")) == "new"
    assert taken(placement, 0, nodes("a", "c", "new")) == "c", "a replica stays where it is"


def test_the_node_of_a_replica_that_has_not_started_is_left_to_it() -> None:
    placement = Placement(2)
    assert taken(placement, 0, nodes("a", "b")) == "a"
    assert taken(placement, 0, nodes("b")) is None
    assert taken(placement, 1, nodes("b")) == "b"


def test_a_shortage_is_reported_with_what_helps() -> None:
    placement = Placement(4)
    assert placement.take(3, nodes("a", "b", "c")) is None
    assert "has 3 usable node(s) that are alive, 4 are needed; add nodes" in placement.shortage()


def test_a_head_node_without_accelerators_or_cpus_gets_no_replica() -> None:
    head, idle = Node("head", "head", 4, 0), Node("idle", "idle", 0, 0)
    assert workers([head, idle, *nodes("a", "b", gpus=8)]) == nodes("a", "b", gpus=8)
    assert workers([head, idle]) == [head]


ANOTHER = 65534

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")


@as_root
def test_a_process_of_another_user_is_named(tmp_path: Path) -> None:
    daemon = shutil.copy("/bin/sleep", tmp_path / "raylet")
    before = others_cluster(tmp_path / "none")
    with subprocess.Popen(["raylet", "600"], executable=daemon) as own:
        try:
            assert others_cluster(tmp_path / "none") == before, "one's own is not another's"
        finally:
            own.kill()
    with (
        open_folder() as folder,
        subprocess.Popen(
            ["/opt/ray/raylet", "600"], executable=shutil.copy(daemon, folder / "raylet"), user=ANOTHER
        ) as other,
    ):
        try:
            assert before is not None or others_cluster(tmp_path / "none") == (
                f"process {other.pid} (raylet) of user nobody"
            )
        finally:
            other.kill()


@as_root
def test_a_file_of_another_user_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ray_current_cluster"
    file.write_text("10.0.0.1:6379")
    before = others_cluster(file)
    os.chown(file, ANOTHER, ANOTHER)
    assert before is not None or others_cluster(file) == f"{file}, which belongs to user {ANOTHER}"


def test_a_cluster_of_another_user_is_not_joined_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from primary.launchers.ray import cluster

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "others_cluster", lambda: "process 7 (raylet) of user mallory")
    with pytest.raises(LaunchError, match=r"process 7 \(raylet\) of user mallory; name your own: --set ray.address"):
        cluster.connect("auto")
