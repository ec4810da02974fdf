"""Faults of one replica's connection that leave the others alone."""

from pathlib import Path

from tests.support.hand_made import SIMULATED, aiperf
from tests.support.hosts.sshd import Hosts
from tests.support.runs import AT_RANDOM, nothing_is_left, report


def test_a_proxy_command_that_is_not_there_costs_the_replica_of_its_host(ssh_hosts: Hosts, tmp_path: Path) -> None:
    config = tmp_path / "config"
    text = (ssh_hosts.folder / "config").read_text()
    config.write_text(text.replace("Host h1\n", "Host h1\n ProxyCommand /nonexistent/nc %h %p\n"))
    output = tmp_path / "run"
    result = aiperf(
        "run",
        *SIMULATED,
        "--launcher",
        "ssh",
        *ssh_hosts.overrides(),
        "--set",
        f'ssh.config_file="{config}"',
        "--replicas",
        2,
        "--duration",
        "5s",
        "--output",
        output,
        *AT_RANDOM,
    )
    assert result.returncode == 0, result.stderr
    found = report(output)
    details = found["replica_details"]
    assert [detail["state"] for detail in details] == ["finished", "lost"]
    for said in (details[1]["reason"], result.stderr):
        assert "h1 (127.0.0.1:" in said and "its ProxyCommand '/nonexistent/nc " in said, said
    assert "/nonexistent/nc: " in details[1]["reason"], "in the words of the shell"
    assert "replica 1 LOST: " in result.stderr
    assert "Traceback" not in result.stderr
    assert details[0]["operations"] > 0
    nothing_is_left(output)
