"""Runs over real sshd processes: keys and agent only, known hosts only, lost connections."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from aiperf.config.sections.cluster import SshSection
from aiperf.errors import LaunchError
from primary.nodes.ssh_client import connect, find_target
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.hosts.sshd import Hosts
from tests.support.nodes.measured import MICRO, check_measured_node
from tests.support.processes import all_end, family
from tests.support.runs import AT_RANDOM, agents, begin, nothing_is_left, report, wait_for_epochs


def test_a_run_over_two_hosts_measures_each_machine_once(ssh_hosts: Hosts, tmp_path: Path) -> None:
    output = tmp_path / "odd name é"
    result = aiperf(
        "run", *SIMULATED, "--launcher", "ssh", *ssh_hosts.overrides(), "--replicas", 2, "--duration", "6s",
        "--output", output, *MICRO, timeout_s=500,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = report(output)
    assert found["ended"] == "deadline"
    assert all(detail["operations"] > 0 for detail in found["replica_details"])
    check_measured_node(output)
    nothing_is_left(output)


def test_a_dropped_connection_ends_the_remote_ranks_and_not_the_run(ssh_hosts: Hosts, tmp_path: Path) -> None:
    output = tmp_path / "run"
    words = ("--launcher", "ssh", *ssh_hosts.overrides(), "--replicas", 2, "--duration", "15s", *AT_RANDOM)
    with begin(output, *words, "--set", "replica.restarts=0") as process:
        wait_for_epochs(output, 5)
        remote = [member for agent in agents(output, 1) for member in family(agent)]
        assert len(remote) >= 2, "the agent and its trainer"
        ssh_hosts.drop_connections("h1")
        assert all_end(remote)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    details = report(output)["replica_details"]
    assert [detail["state"] for detail in details] == ["finished", "lost"]
    assert "cannot be reached: the connection is lost; host h1" in details[1]["reason"]


def test_a_key_that_is_not_accepted_is_reported_with_the_command_that_helps(ssh_hosts: Hosts, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    config = tmp_path / "config"
    config.write_text((ssh_hosts.folder / "config").read_text().replace(f"{ssh_hosts.folder}/id", str(other)))
    settings = ssh_hosts.settings.model_copy(update={"config_file": str(config)})
    with pytest.raises(LaunchError, match=r"h0 \(127\.0\.0\.1:\d+\): no key is accepted; .*ssh-copy-id -p"):
        connect("h0", settings)
    result = aiperf(
        "run", *SIMULATED, "--launcher", "ssh", *ssh_hosts.overrides(), "--set", f'ssh.config_file="{config}"',
        "--duration", "10s", "--output", tmp_path / "run",
    )  # fmt: skip
    assert result.returncode == 1
    assert "no key is accepted" in report(tmp_path / "run")["replica_details"][0]["reason"]


def test_unknown_and_changed_host_keys_are_refused(ssh_hosts: Hosts, tmp_path: Path) -> None:
    empty = ssh_hosts.settings.model_copy(update={"known_hosts": str(tmp_path / "none")})
    with pytest.raises(
        LaunchError, match=r"its host key is not known\. Verify it, then: ssh-keyscan -p \d+ 127\.0\.0\.1"
    ):
        connect("h0", empty)
    keys = (ssh_hosts.folder / "known_hosts").read_text().splitlines()
    swapped = tmp_path / "swapped"
    first, second = keys[0].split(), keys[1].split()
    swapped.write_text(f"{first[0]} {second[1]} {second[2]}\n")
    changed = ssh_hosts.settings.model_copy(update={"known_hosts": str(swapped)})
    with pytest.raises(LaunchError, match=r"its host key has CHANGED: .*ssh-keygen -f .*swapped -R '\[127"):
        connect("h0", changed)
    assert not (tmp_path / "none").exists(), "no key is accepted silently"


def test_jump_hosts_are_honoured(ssh_hosts: Hosts, tmp_path: Path) -> None:
    config = tmp_path / "config"
    text = (ssh_hosts.folder / "config").read_text()
    config.write_text(text.replace("Host h1\n", "Host h1\n ProxyJump h2,h0\n"))
    settings = ssh_hosts.settings.model_copy(update={"config_file": str(config)})
    client = connect("h1", settings)
    _, stdout, _ = client.exec_command("echo $SSH_CONNECTION")
    assert stdout.read().split()[-1].decode() == str(ssh_hosts.ports["h1"])
    client.close()
    config.write_text(text.replace("Host h1\n", "Host h1\n ProxyJump h1\n"))
    with pytest.raises(LaunchError, match="more than 8 jump hosts"):
        connect("h1", settings)


def test_hosts_as_a_user_writes_them(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host big\n HostName big.example.org\n User operator\n Port 2222\n")
    settings = SshSection(config_file=str(config))
    target = find_target("big", settings)
    assert (target.host, target.port, target.user) == ("big.example.org", 2222, "operator")
    assert target.key_name == "[big.example.org]:2222"
    target = find_target("me@other:2200", settings)
    assert (target.host, target.port, target.user) == ("other", 2200, "me")
    with pytest.raises(LaunchError, match="'x' is not a port"):
        find_target("other:x", settings)


def test_probe_describes_the_nodes_and_why_others_are_silent(ssh_hosts: Hosts, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    files = ("--ssh-config", ssh_hosts.folder / "config", "--known-hosts", ssh_hosts.folder / "known_hosts")
    result = aiperf("nodes", "probe", "h[0-1]", "127.0.0.1:9", "--shared", shared, "--data-dir", tmp_path / "no",
                    "--python", sys.executable, *files, "--format", "json")  # fmt: skip
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert sorted(document["nodes"]) == ["h0", "h1"]
    facts = document["nodes"]["h0"]
    assert facts["memory_bytes"] == pytest.approx(psutil.virtual_memory().total, rel=0.01)
    assert facts["cpu_count"] == psutil.cpu_count()
    assert (facts["shared"], facts["data"], facts["address"]) == ("writable", "missing", "127.0.0.1")
    assert abs(facts["clock_offset_ms"]) < 5000
    assert facts["packages"]["aiperf-hpc"] is not None
    assert list(shared.iterdir()) == []
    assert "127.0.0.1:9" in document["failures"]
    assert "failed: 127.0.0.1:9 (127.0.0.1:9): Connection refused; does an ssh server run there" in result.stderr
    inventory = tmp_path / "inventory.json"
    inventory.write_text(result.stdout)
    twice = aiperf("slurm", "configure", inventory, "--output", tmp_path / "etc", "--controller", "head")
    assert twice.returncode == 2
    assert f"h0 and h1 are one node, {facts['host'].split('.')[0]}; name it once" in twice.stderr
    del document["nodes"]["h1"]
    inventory.write_text(json.dumps(document))
    made = aiperf("slurm", "configure", inventory, "--output", tmp_path / "etc", "--controller", "head")
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "etc/slurm.conf").read_text()
    assert "SlurmctldHost=head" in text
    assert f"ThreadsPerCore={facts['threads_per_core']}" in text
    table = aiperf("nodes", "probe", "h0", *files)
    assert table.returncode == 0
    assert "GiB" in table.stdout


def test_a_node_without_the_python_is_a_failure_with_its_reason(ssh_hosts: Hosts) -> None:
    files = ("--ssh-config", ssh_hosts.folder / "config", "--known-hosts", ssh_hosts.folder / "known_hosts")
    result = aiperf("nodes", "probe", "h0", "--python", "/no/python", *files)
    assert result.returncode == 1
    assert "h0: /no/python gave no answer" in result.stderr


def test_too_few_hosts_are_an_error_of_usage(tmp_path: Path) -> None:
    result = aiperf("run", *SIMULATED, "--launcher", "ssh", "--replicas", 3, "--set", 'ssh.hosts=["a"]',
                    "--output", tmp_path / "run")  # fmt: skip
    assert (result.returncode, "ssh.hosts names 1 host(s); 3 replica(s) need 3" in result.stderr) == (2, True)
