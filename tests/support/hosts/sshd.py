"""Real sshd processes on the loopback: several hosts with ports and keys of their own."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.config.sections.cluster import SshSection
from tests.support.hand_made import free_port
from tests.support.needs import need
from tests.support.processes import ask, family


@dataclass
class Hosts:
    """Hosts h0, h1, ... with one client key that they accept."""

    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def settings(self) -> SshSection:
        return SshSection(
            hosts=tuple(self.ports),
            config_file=str(self.folder / "config"),
            known_hosts=str(self.folder / "known_hosts"),
            connect_timeout=20.0,
            keep_alive=1.0,
        )

    def overrides(self) -> list[str]:
        """Options of `aiperf run`."""
        names = ", ".join(f'"{name}"' for name in self.ports)
        words = {
            "ssh.hosts": f"[{names}]",
            "ssh.config_file": f'"{self.folder}/config"',
            "ssh.known_hosts": f'"{self.folder}/known_hosts"',
            "ssh.keep_alive": "1.0",
        }
        return [word for key, value in words.items() for word in ("--set", f"{key}={value}")]

    def drop_connections(self, name: str) -> None:
        """Kill the server's ends of all connections to a host, and nothing else."""
        for member in family(self.daemons[name].pid)[1:]:
            if ask(member.name, "").startswith("sshd"):
                ask(member.kill, None)

    def stop(self) -> None:
        """End the servers and all that was started through them."""
        for daemon in self.daemons.values():
            for process in family(daemon.pid) if daemon.poll() is None else []:
                ask(process.kill, None)
            daemon.wait()


def start_hosts(folder: Path, count: int, shells: Sequence[str] = ()) -> Hosts:
    """Start sshd processes. Skips the test if there is no sshd.

    `shells` are commands that a host runs in place of the login shell: they get the remote command
    line as `$SSH_ORIGINAL_COMMAND`.
    """
    need("sshd", "ssh-keygen")
    if os.geteuid() == 0:  # only root's sshd needs it
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    hosts = Hosts(folder)
    _key(folder / "id")
    shutil.copy(folder / "id.pub", folder / "authorized_keys")
    known, config = [], []
    for number in range(count):
        name, port = f"h{number}", free_port()
        _key(folder / name)
        hosts.ports[name] = port
        kind, key, *_ = (folder / f"{name}.pub").read_text().split()
        known.append(f"[127.0.0.1]:{port} {kind} {key}\n")
        config.append(
            f"Host {name}\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n IdentityFile {folder}/id\n"
        )
        hosts.daemons[name] = _sshd(folder, name, port, shells[number] if shells else "")
    (folder / "known_hosts").write_text("".join(known))
    (folder / "config").write_text("".join(config))
    for port in hosts.ports.values():
        _wait_for(port)
    return hosts


def _sshd(folder: Path, name: str, port: int, shell: str) -> subprocess.Popen[bytes]:
    options = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / name,
        "PidFile": "none",
        "UsePAM": "no",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PasswordAuthentication": "no",
        "StrictModes": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "yes",
        "Subsystem": "sftp internal-sftp",
        "SetEnv": f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}",  # the same source as here
    }
    options |= {"ForceCommand": shell} if shell else {}
    words = [word for option, value in options.items() for word in ("-o", f"{option}={value}")]
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    known = subprocess.run([program, "-T", "-f", "/dev/null", *words], capture_output=True, text=True, check=True)
    if "persourcepenalties" in known.stdout:  # else a killed session would keep this machine off for a while
        words += ["-o", "PerSourcePenalties=no"]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([program, "-D", "-e", "-f", "/dev/null", *words], stderr=log, stdin=subprocess.DEVNULL)


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _wait_for(port: int) -> None:
    for _ in range(4000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"no sshd on port {port}")
