"""The inventory of nodes as people read it, and nodes that cannot be reached."""

import subprocess
import sys
from pathlib import Path

import pytest
from paramiko import HostKeys

from aiperf.config.sections.cluster import SshSection
from aiperf.errors import LaunchError, UsageError
from primary.nodes.cli import _shown_offset
from primary.nodes.paramiko_program import _matches
from primary.nodes.probe import SCRIPT, NodeAnswer
from primary.nodes.ssh_client import explained, find_target, ssh_command
from slurm.configure import read_inventory
from tests.support.hand_made import aiperf


def test_without_an_answer_there_is_no_table_and_the_reason_is_in_words() -> None:
    failed = aiperf("nodes", "probe", "no-such-host.invalid")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("failed: no-such-host.invalid (no-such-host.invalid:22): its name is not known")
    assert "Errno" not in failed.stderr


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ssh: Could not resolve hostname n1: Name or service not known", "its name is not known to this machine"),
        ("ssh: connect to host n1 port 22: Connection timed out", "no answer within 15 s"),
        ("ssh: connect to host n1 port 22: Connection refused", "Connection refused; does an ssh server run there"),
        ("ssh: connect to host n1 port 22: No route to host", "ssh: connect to host n1 port 22: No route to host"),
        ("", "ssh has ended without a word"),
    ],
)
def test_errors_of_the_network_are_in_words(said: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    settings = SshSection(config_file=str(tmp_path / "config"), connect_timeout=15)
    assert explained("n1", settings, said).startswith(f"n1 (n1:22): {words}")


@pytest.mark.parametrize(
    "ssh",
    [
        "kex_exchange_identification: Connection closed by remote host",
        "banner exchange: Connection to UNKNOWN port 65535: Broken pipe",
    ],
)
@pytest.mark.parametrize("shell", ["/bin/sh: 1: exec: /no/nc: not found", ""])
def test_a_proxy_command_that_fails_is_named_whoever_speaks_first(ssh: str, shell: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host n1\n ProxyCommand /no/nc %h %p\n")
    settings = SshSection(config_file=str(tmp_path / "config"))
    for said in (f"{shell}\n{ssh}", f"{ssh}\n{shell}"):
        found = explained("n1", settings, said)
        assert found == f"n1 (n1:22): its ProxyCommand '/no/nc %h %p' fails: {shell or ssh}"


@pytest.mark.parametrize(
    ("offset_ms", "shown"), [(-20, "+0.0 s"), (0, "+0.0 s"), (-60, "-0.1 s"), (1200, "+1.2 s (!)")]
)
def test_no_clock_is_off_by_minus_zero(offset_ms: int, shown: str) -> None:
    assert _shown_offset(offset_ms) == shown


def test_two_names_of_one_node_are_not_written_into_slurm_conf() -> None:
    facts = {
        "host": "vm.site",
        "address": "10.0.0.1",
        "sockets": 1,
        "cores_per_socket": 2,
        "threads_per_core": 1,
        "memory_bytes": 2**33,
        "accelerators": [],
    }
    (node,) = read_inventory({"nodes": {"a": facts}})
    assert node.host == "vm"
    with pytest.raises(UsageError, match="a and b are one node, vm; name it once"):
        read_inventory({"nodes": {"a": facts, "b": facts}})


SMI = """#!/bin/sh
cat <<'ROWS'
NVIDIA GB10, [N/A], 580.95
Tesla, V100, 32510.5, 570.1
[GPU is lost], [GPU is lost], [GPU is lost]
Huge, 99999999999999, 570.1
Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost. Reboot the system to recover this GPU
ROWS
echo "WARNING: infoROM is corrupted at gpu 0000:D8:00.0" >&2
exit 15
"""


def test_a_probe_counts_rows_and_shows_what_nvidia_smi_complains_of(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, SCRIPT], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, check=True
    )
    answer = NodeAnswer.model_validate_json(done.stdout)
    assert [(gpu.name, gpu.memory_bytes) for gpu in answer.accelerators] == [
        ("NVIDIA GB10", None),
        ("Tesla, V100", 32510 << 20),
        ("Huge", None),
    ]
    assert [complaint[:40] for complaint in answer.complaints] == [
        "nvidia-smi: [GPU is lost], [GPU is lost]",
        "nvidia-smi: Unable to determine the devi",
        "nvidia-smi: WARNING: infoROM is corrupte",
    ]


def test_paramiko_finds_a_host_in_known_hosts_as_openssh_does() -> None:
    hashed = HostKeys.hash_host("[n1]:2200")
    assert _matches("[n1]:2200", ["other", "[n?]:2200"])
    assert _matches("[n1]:2200", [hashed])
    assert _matches("N1.example.org", ["*.Example.org"])
    assert not _matches("n1.example.org", ["*.example.org", "!n1.*"])
    assert not _matches("n1", [hashed, "|1|damaged", "n11", "[n1]:2200"])


def test_paramiko_reads_the_configuration_of_a_host(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host big\n HostName big.example.org\n Port 2222\n ProxyJump none\n"
        'Match originalhost big exec "true"\n User other\n'
        "Match originalhost big\n User operator\n"
        "Host circle\n ProxyJump circle\nHost odd\n Port many\n"
    )
    settings = SshSection(client="paramiko", config_file=str(config))
    target = find_target("big", settings)
    assert (target.host, target.port, target.user, target.jump) == ("big.example.org", 2222, "operator", "")
    assert find_target("me@[::1]:2200", settings).key_name == "[::1]:2200"
    with pytest.raises(LaunchError, match="more than 8 jump hosts"):
        ssh_command("circle", settings)
    with pytest.raises(LaunchError, match="odd: 'many' is not a port"):
        find_target("odd", settings)
