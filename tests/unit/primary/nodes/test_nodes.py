"""The inventory of nodes as people read it, and nodes that cannot be reached."""

from __future__ import annotations

import socket

import pytest
from paramiko.ssh_exception import NoValidConnectionsError

from aiperf.config.sections.cluster import SshSection
from aiperf.errors import UsageError
from primary.nodes.cli import _shown_offset
from primary.nodes.ssh_client import _explained, find_target
from slurm.configure import read_inventory
from tests.support.hand_made import aiperf


def test_without_an_answer_there_is_no_table_and_the_reason_is_in_words() -> None:
    failed = aiperf("nodes", "probe", "no-such-host.invalid")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("failed: no-such-host.invalid (no-such-host.invalid:22): its name is not known")
    assert "Errno" not in failed.stderr


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "its name is not known to this machine"),
        (TimeoutError("timed out"), "no answer within 15 s"),
        (NoValidConnectionsError({("1.2.3.4", 22): ConnectionRefusedError(111, "Connection refused")}),
         "Connection refused; does an ssh server run there"),
        (OSError(113, "No route to host"), "No route to host"),
        (EOFError(), "EOFError"),
    ],
)  # fmt: skip
def test_errors_of_the_network_are_in_words(error: Exception, words: str) -> None:
    settings = SshSection(config_file="/none", connect_timeout=15)
    assert _explained(find_target("n1", settings), settings, error).startswith(f"n1 (n1:22): {words}")


@pytest.mark.parametrize(
    ("offset_ms", "shown"), [(-20, "+0.0 s"), (0, "+0.0 s"), (-60, "-0.1 s"), (1200, "+1.2 s (!)")]
)
def test_no_clock_is_off_by_minus_zero(offset_ms: int, shown: str) -> None:
    assert _shown_offset(offset_ms) == shown


def test_two_names_of_one_node_are_not_written_into_slurm_conf() -> None:
    facts = {"host": "vm.site", "address": "10.0.0.1", "sockets": 1, "cores_per_socket": 2, "threads_per_core": 1,
             "memory_bytes": 2**33, "accelerators": []}  # fmt: skip
    (node,) = read_inventory({"nodes": {"a": facts}})
    assert node.host == "vm"
    with pytest.raises(UsageError, match="a and b are one node, vm; name it once"):
        read_inventory({"nodes": {"a": facts, "b": facts}})
