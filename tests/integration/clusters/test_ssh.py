"""Runs over real sshd processes: keys and agent only, known hosts only, lost connections."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal

import psutil
import pytest

from aiperf.clock import SystemClock
from aiperf.config.sections.cluster import SshSection
from aiperf.config.settings import load_config
from aiperf.errors import LaunchError
from primary.launchers import Exit, ReplicaSpec, make_launcher
from primary.nodes.probe import ProbeRequest, probe
from primary.nodes.ssh_client import (
    CLIENTS,
    FAILED,
    check_jumps,
    client_name,
    explained,
    find_target,
    in_a_shell,
    run,
    ssh_command,
)
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.hosts.sshd import Hosts, start_hosts
from tests.support.needs import need
from tests.support.nodes.measured import MICRO, check_measured_node
from tests.support.processes import all_end, family
from tests.support.runs import (
    AT_RANDOM,
    agents,
    all_have_epochs,
    begin,
    history,
    interrupt,
    interrupt_series,
    nothing_is_left,
    report,
    run_until,
    wait_for,
    wait_for_another_epoch,
    wait_for_epochs,
)


def test_a_run_over_two_hosts_measures_each_machine_once(
    ssh_hosts: Hosts, small_caches: dict[str, str], tmp_path: Path
) -> None:
    path = f"export PYTHONPATH='{small_caches['PYTHONPATH']}'"  # no host hands variables on
    output, _, result = run_until(
        tmp_path / "odd name é",
        6,
        lambda output: all_have_epochs(output, 2),
        "--launcher",
        "ssh",
        *ssh_hosts.overrides(),
        "--replicas",
        2,
        *MICRO,
        "--set",
        f"environment.activate={json.dumps(path)}",
        "--set",
        f"environment.python={json.dumps(sys.executable)}",
    )
    assert result.returncode == 0, result.stderr
    found = report(output)
    assert found["ended"] == "deadline"
    assert all(detail["operations"] > 0 for detail in found["replica_details"])
    check_measured_node(output)
    nothing_is_left(output)


def test_a_series_whose_own_process_is_killed_waits_for_its_run(ssh_hosts: Hosts, tmp_path: Path) -> None:
    interrupt_series(tmp_path / "series", "--launcher", "ssh", *ssh_hosts.overrides(), orphan=True)


def test_a_dropped_connection_ends_the_remote_ranks_and_not_the_run(ssh_hosts: Hosts, tmp_path: Path) -> None:
    output = tmp_path / "run"
    words = ("--launcher", "ssh", *ssh_hosts.overrides(), "--replicas", 2, "--duration", "30m", *AT_RANDOM)
    with begin(output, *words, "--set", "replica.restarts=0") as process:
        wait_for_epochs(output, 5)
        remote = list[psutil.Process]()
        while len(remote) < 2:  # the agent and its trainer; between trials it has none
            remote = [member for agent in agents(output, 1) for member in family(agent)]
        ssh_hosts.drop_connections("h1")
        assert all_end(remote)
        wait_for(lambda: '"replica_lost"' in history(output))
        wait_for_another_epoch(output, 0)
        _, err = interrupt(process)
    assert process.returncode == 1, err
    details = report(output)["replica_details"]
    assert [detail["state"] for detail in details] == ["finished", "lost"]
    assert "cannot be reached: the connection is lost; host h1" in details[1]["reason"]


BOTH_CLIENTS = pytest.mark.parametrize("client", CLIENTS)


def refusal(name: str, settings: SshSection) -> str:
    """Why a host cannot be reached, as a run says it."""
    done = run([*ssh_command(name, settings), "true"])
    assert done.code == FAILED, done.output
    return explained(name, settings, done.errors)


def pasted(remedy: str) -> subprocess.CompletedProcess[str]:
    """The remedy of a message, as a user pastes it into a shell."""
    return subprocess.run(["bash", "-c", remedy], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def changed(hosts: Hosts, tmp_path: Path, *replaced: tuple[str, str], **settings: str) -> SshSection:
    """The settings of hosts with another configuration of ssh."""
    text = (hosts.folder / "config").read_text()
    for old, new in replaced:
        text = text.replace(old, new)
    (tmp_path / "config").write_text(text)
    return hosts.settings.model_copy(update={"config_file": str(tmp_path / "config"), **settings})


def test_a_key_that_is_not_accepted_is_reported_with_the_command_that_helps(ssh_hosts: Hosts, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    settings = changed(ssh_hosts, tmp_path, (f"{ssh_hosts.folder}/id", str(other)))
    said = refusal("h0", settings)
    assert re.match(r"h0 \(127\.0\.0\.1:\d+\): no key is accepted; .*ssh-copy-id -p \d+ \S+@127\.0\.0\.1$", said), said
    result = aiperf(
        "run",
        *SIMULATED,
        "--launcher",
        "ssh",
        *ssh_hosts.overrides(),
        "--set",
        f'ssh.config_file="{settings.config_file}"',
        "--duration",
        "10s",
        "--output",
        tmp_path / "run",
    )
    assert result.returncode == 1
    assert "no key is accepted" in report(tmp_path / "run")["replica_details"][0]["reason"]


@BOTH_CLIENTS
def test_a_missing_key_is_passed_over_and_a_locked_one_named(
    client: str, ssh_hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = f"IdentityFile {ssh_hosts.folder}/id"
    several = changed(ssh_hosts, tmp_path, (key, f"IdentityFile /no/such/key\n {key}"), client=client)
    assert run([*ssh_command("h0", several), "true"]).code == 0
    none = changed(ssh_hosts, tmp_path, (key, "IdentityFile /no/such/key"), client=client)
    assert "There is no key here: ssh-keygen -t ed25519 && ssh-copy-id -p" in refusal("h0", none)
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)], check=True)
    assert f'ssh-agent)" && ssh-add {locked}' in refusal(
        "h0", changed(ssh_hosts, tmp_path, (key, f"IdentityFile {locked}"), client=client)
    )


@BOTH_CLIENTS
def test_the_remedy_for_an_unknown_or_changed_host_works_when_pasted(
    client: str, ssh_hosts: Hosts, tmp_path: Path
) -> None:
    known = tmp_path / "known hosts"
    empty = ssh_hosts.settings.model_copy(update={"known_hosts": str(known), "client": client})
    said = refusal("h0", empty)
    assert "its host key is not known. Verify it, then: ssh -o StrictHostKeyChecking=accept-new" in said
    assert not known.exists(), "no key is accepted silently"
    pasted(said.partition("then: ")[2])
    assert run([*ssh_command("h0", empty), "true"]).code == 0
    port, other = ssh_hosts.ports["h1"], known.read_text().split()
    known.write_text(f"[127.0.0.1]:{port} {other[1]} {other[2]}\n")
    said = refusal(f"h1:{port}", empty)
    assert "its host key has CHANGED" in said
    pasted(said.partition("If you know why: ")[2])
    assert run([*ssh_command("h1", empty), "true"]).code == 0
    through = changed(
        ssh_hosts, tmp_path, ("Host h1\n", "Host h1\n ProxyJump h0\n"), known_hosts=str(known), client=client
    )
    known.write_text("")
    for of in (f"the host key of its jump host [127.0.0.1]:{ssh_hosts.ports['h0']}", "its host key"):
        said = refusal("h1", through)
        assert f"{of} is not known" in said
        pasted(said.partition("then: ")[2])
    assert run([*ssh_command("h1", through), "true"]).code == 0


@BOTH_CLIENTS
def test_a_key_is_installed_where_it_is_missing(client: Literal["openssh", "paramiko"], tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "config").write_text(
        f"Host *\n User me\n IdentityFile {key}\nHost gate\n HostName gate.example.org\n Port 2222\n"
        "Host node\n HostName node.example.org\n ProxyJump gate\n"
    )
    settings = SshSection(client=client, config_file=str(tmp_path / "config"))
    at_jump = explained("node", settings, "me@gate.example.org: Permission denied (publickey).")
    assert "no key is accepted at its jump host gate; " in at_jump
    assert "Install a key with: ssh-copy-id -p 2222 me@gate.example.org" in at_jump
    at_node = explained("node", settings, "me@node.example.org: Permission denied (publickey).")
    assert "no key is accepted; " in at_node
    assert "ssh-copy-id -o ProxyJump=me@gate.example.org:2222 me@node.example.org" in at_node


@BOTH_CLIENTS
def test_one_line_of_known_hosts_never_costs_another_host(client: str, ssh_hosts: Hosts, tmp_path: Path) -> None:
    """Marks, patterns, aliases and damage, as OpenSSH takes them."""
    lines = (ssh_hosts.folder / "known_hosts").read_text().splitlines()
    keys = [" ".join(line.split()[1:]) for line in lines]
    ports = list(ssh_hosts.ports.values())
    known = tmp_path / "known"
    known.write_text(
        f"@cert-authority *.example.org {keys[1]}\n@revoked elsewhere {keys[1]}\nx ssh-rsa AAAAdamaged\n\n"
        f"!other,[127.0.0.*]:{ports[0]} {keys[0]}\nalias {keys[1]}\n@revoked * {keys[2]}\n{lines[2]}\n"
    )
    settings = changed(
        ssh_hosts, tmp_path, ("Host h1\n", "Host h1\n HostKeyAlias alias\n"), known_hosts=str(known), client=client
    )
    assert [run([*ssh_command(name, settings), "true"]).code for name in ("h0", "h1", "h2")] == [0, 0, FAILED]
    assert "its host key is marked as REVOKED" in refusal("h2", settings)


@BOTH_CLIENTS
def test_jump_hosts_are_honoured(client: str, ssh_hosts: Hosts, tmp_path: Path) -> None:
    settings = changed(ssh_hosts, tmp_path, ("Host h1\n", "Host h1\n ProxyJump h2,h0\n"), client=client)
    check_jumps("h1", settings)
    done = run([*ssh_command("h1", settings), "echo $SSH_CONNECTION"])
    assert done.output.split()[-1] == str(ssh_hosts.ports["h1"]), done.errors
    circle = changed(
        ssh_hosts,
        tmp_path,
        ("Host h1\n", "Host h1\n ProxyJump h2\n"),
        ("Host h2\n", "Host h2\n ProxyJump h1\n"),
        client=client,
    )
    (tmp_path / "circle").write_text((tmp_path / "config").read_text())
    circle = circle.model_copy(update={"config_file": str(tmp_path / "circle")})
    with pytest.raises(LaunchError, match="more than 8 jump hosts"):
        check_jumps("h1", circle)


@BOTH_CLIENTS
def test_a_server_that_says_nothing_has_given_no_answer(client: Literal["openssh", "paramiko"], tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = SshSection(client=client, config_file=str(tmp_path / "config"), connect_timeout=1.0)
        assert "no answer within 1 s; is it up" in refusal(f"127.0.0.1:{server.getsockname()[1]}", settings)


def test_hosts_as_a_user_writes_them(tmp_path: Path) -> None:
    config, included = tmp_path / "config", tmp_path / "included"
    included.write_text("Host big\n HostName big.example.org\n User operator\n Port 2222\n")
    config.write_text(f"Include {included}\nHost far\n ProxyCommand nc %h %p\n")
    settings = SshSection(config_file=str(config))
    target = find_target("big", settings)
    assert (target.host, target.port, target.user) == ("big.example.org", 2222, "operator")
    assert target.key_name == "[big.example.org]:2222"
    target = find_target("me@other:2200", settings)
    assert (target.host, target.port, target.user) == ("other", 2200, "me")
    assert find_target("[::1]:2200", settings).host == "::1"
    assert find_target("far", settings).command.startswith("nc")
    with pytest.raises(LaunchError, match="'x' is not a port"):
        find_target("other:x", settings)
    assert in_a_shell("me@other:2200", settings) == f"ssh -F {config} -p 2200 me@other"
    config.write_text("NoSuchOption yes\n")
    assert in_a_shell("other", settings) == f"ssh -F {config} other"


def test_hosts_that_mpirun_cannot_be_told_are_refused(tmp_path: Path) -> None:
    result = aiperf(
        "run",
        *SIMULATED,
        "--launcher",
        "ssh",
        "--set",
        "replica.nodes=2",
        "--set",
        'ssh.hosts=["gpu00", "alice@gpu01:2222"]',
        "--output",
        tmp_path / "run",
    )
    assert result.returncode == 2
    assert "alice@gpu01:2222 names a user or a port, which mpirun" in result.stderr


def test_without_openssh_paramiko_connects_and_without_both_the_message_says_so(
    ssh_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client_name(ssh_hosts.settings) == "openssh"
    monkeypatch.setenv("PATH", "/none")
    assert client_name(ssh_hosts.settings) == "paramiko"
    found = probe(["h0", "h1", "127.0.0.1:9"], ProbeRequest(ssh_hosts.settings, sys.executable), SystemClock())
    assert [found.nodes[name]["address"] for name in ("h0", "h1")] == ["127.0.0.1"] * 2
    assert "127.0.0.1:9 (127.0.0.1:9): Connection refused; does an ssh server" in found.failures["127.0.0.1:9"]
    unknown = ssh_hosts.settings.model_copy(update={"known_hosts": "/no/such/file"})
    assert "(OpenSSH's programs are not on this machine" in refusal("h0", unknown)
    with pytest.raises(LaunchError, match="the program ssh of OpenSSH is not on this machine: install it"):
        find_target("h0", SshSection(client="openssh"))
    monkeypatch.setattr("primary.nodes.ssh_client.find_spec", lambda _: None)
    with pytest.raises(LaunchError, match=r"openssh-client.*, or pip install paramiko"):
        find_target("h0", SshSection())


TALKS = "for n in $(seq 1000); do echo talk $n; done; printf unfinished; head -c 25000000 /dev/zero >&2; "
SHELLS = {
    "bash": 'exec bash -c "$SSH_ORIGINAL_COMMAND"',
    "dash": 'exec dash -c "$SSH_ORIGINAL_COMMAND"',
    "tcsh": 'exec tcsh -c "$SSH_ORIGINAL_COMMAND"',
    "fish": 'exec fish -c "$SSH_ORIGINAL_COMMAND"',
    "talking": f'{TALKS} exec fish -c "$SSH_ORIGINAL_COMMAND"',
}
CHILDREN = (
    "import os, signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('complaint', sys.argv[1], file=sys.stderr, flush=True)\n"
    "print(os.getpid(), subprocess.Popen(['sleep', '600']).pid, os.getcwd(), flush=True)\ntime.sleep(600)"
)
ODD = 'it\'s \\ "odd" !! $HOME\nanother line'


def test_replicas_work_whatever_the_login_shell_is_and_says(tmp_path: Path) -> None:
    need("fish", "tcsh", "dash")
    hosts = start_hosts(tmp_path / "hosts", len(SHELLS), list(SHELLS.values()))
    settings = {f"ssh.{name}": value for name, value in hosts.settings.model_dump().items()}
    config = load_config(
        overrides={"run.dataset": "digits", "run.launcher": "ssh", "run.replicas": len(SHELLS), **settings}
    )
    launcher = make_launcher(config, SystemClock())

    async def works(replica: int) -> list[int]:
        log = tmp_path / f"{replica}.log"
        process = await launcher.start(ReplicaSpec(replica, (sys.executable, "-c", CHILDREN, ODD), log))
        own, child, folder = (await process.receive()).decode().split(maxsplit=2)
        assert folder.strip() == str(Path.cwd())
        await process.cancel(0.2)
        assert f"complaint {ODD}" in log.read_text(errors="replace")
        ended = await launcher.start(ReplicaSpec(replica, (sys.executable, "-c", "raise SystemExit(7)"), log))
        assert await ended.wait() == Exit(7)
        return [int(own), int(child)]

    async def scenario() -> list[int]:
        return [pid for pids in await asyncio.gather(*map(works, range(len(SHELLS)))) for pid in pids]

    try:
        assert all_end([psutil.Process(pid) for pid in asyncio.run(scenario()) if psutil.pid_exists(pid)])
    finally:
        hosts.stop()
    log = (tmp_path / "4.log").read_text(errors="replace")
    assert "(before the replica) talk 1000\n" in log
    assert "(before the replica) unfinished\n" in log
    assert len(log) < 4 << 20


def test_probe_describes_the_nodes_and_why_others_are_silent(ssh_hosts: Hosts, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    files = ("--ssh-config", ssh_hosts.folder / "config", "--known-hosts", ssh_hosts.folder / "known_hosts")
    result = aiperf(
        "nodes",
        "probe",
        "h[0-1]",
        "127.0.0.1:9",
        "--shared",
        shared,
        "--data-dir",
        tmp_path / "no",
        "--python",
        sys.executable,
        *files,
        "--format",
        "json",
    )
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
    result = aiperf(
        "run",
        *SIMULATED,
        "--launcher",
        "ssh",
        "--replicas",
        3,
        "--set",
        'ssh.hosts=["a"]',
        "--output",
        tmp_path / "run",
    )
    assert (result.returncode, "ssh.hosts names 1 host(s); 3 replica(s) need 3" in result.stderr) == (2, True)
