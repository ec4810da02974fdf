"""The network between the nodes of a replica: a real training on two nodes with two networks."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.hosts.two_nodes import need_two_nodes, on_first_node
from tests.support.trainings.installed import need_frameworks

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_travel_by_the_interface_that_is_chosen(groups: int, tmp_path: Path) -> None:
    """Between the ranks of one group, and between a group on either node and a parameter server."""
    need_frameworks("torch")
    for name in ("tried", "nodes"):
        (tmp_path / name).mkdir()
    need_two_nodes(tmp_path / "tried")
    folder = tmp_path / "nodes"
    done = on_first_node(folder, sys.executable, "-m", "tests.support.hosts.two_nodes", str(folder), "ib0", str(groups))
    log = folder / "log"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
    images, sent = json.loads(done.stdout.splitlines()[-1])
    assert sum(images) == 2 * 1437
    assert sent["ib0"] > 500_000, "2 x 22 steps with 11,000 gradients of 4 bytes, though they come from both sides"
    assert sent["eth0"] < 100_000, "only the start: the hosts are named by their other addresses"
