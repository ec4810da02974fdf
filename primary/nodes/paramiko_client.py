"""The ssh client paramiko, for machines without OpenSSH's."""

import getpass
import io
import json
import re
from dataclasses import asdict
from pathlib import Path

import paramiko

from aiperf.config.sections.cluster import SshSection
from aiperf.errors import LaunchError
from aiperf.processes import python_module
from primary.nodes import ssh_client
from primary.nodes.paramiko_program import Hop

SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")

EXEC = re.compile(r"^\s*match\b.*\bexec\b.*$", re.IGNORECASE | re.MULTILINE)
"""Lines with Match exec, whose command would read this process's standard input."""


class Paramiko:
    """A process of its own for each connection, as OpenSSH's client is one."""

    def command(self, name: str, settings: SshSection) -> list[str]:
        """The words of the program, with the hosts on the way. Raises LaunchError."""
        way = {
            "hops": [asdict(hop) for hop in self._way_to(name, settings, 0)],
            "known_hosts": [SYSTEM_KNOWN_HOSTS, ssh_client.expanded(settings.known_hosts)],
            "timeout_s": settings.connect_timeout,
            "keep_alive_s": max(1, round(settings.keep_alive)),
        }
        return list(python_module("primary.nodes.paramiko_program", json.dumps(way)))

    def find_target(self, name: str, settings: SshSection) -> ssh_client.Target:
        """The options of a host, by paramiko's reading of the configuration. Raises LaunchError."""
        return self._look_up(name, settings)[0]

    def _way_to(self, name: str, settings: SshSection, jumps: int) -> list[Hop]:
        if jumps > ssh_client.MAX_JUMPS:
            raise LaunchError(f"{name}: more than {ssh_client.MAX_JUMPS} jump hosts; do they form a circle?")
        target, options = self._look_up(name, settings)
        before = self._way_to(target.jumps[0], settings, jumps + 1) if target.jumps else []
        before += [_hop(*self._look_up(other, settings)) for other in target.jumps[1:]]
        return [*before, _hop(target, options)]

    def _look_up(self, name: str, settings: SshSection) -> tuple[ssh_client.Target, paramiko.SSHConfigDict]:
        user, host, port = ssh_client.parts_of(name)
        try:
            options = _configuration(settings).lookup(host)
        except paramiko.SSHException as error:
            raise LaunchError(f"{name}: paramiko cannot use {settings.config_file}: {error}") from None
        jump = options.get("proxyjump", "none")
        try:
            target = ssh_client.Target(
                name,
                host=options.get("hostname", host),
                port=int(port or options.get("port", str(ssh_client.DEFAULT_PORT))),
                user=user or options.get("user") or getpass.getuser(),
                keys=tuple(options.get("identityfile", DEFAULT_KEYS)),
                jump="" if jump == "none" else jump,
                command=options.get("proxycommand", ""),
                alias=options.get("hostkeyalias", ""),
            )
        except ValueError:
            raise LaunchError(f"{name}: {options['port']!r} is not a port ({settings.config_file})") from None
        return target, options


def _configuration(settings: SshSection) -> paramiko.SSHConfig:
    paths = [ssh_client.expanded(settings.config_file)]
    # As ssh does: `-F FILE` leaves out the system's configuration (ssh(1)).
    paths += [ssh_client.SYSTEM_CONFIG] if settings.config_file == ssh_client.DEFAULTS.config_file else []
    config = paramiko.SSHConfig()
    for path in map(Path, paths):
        try:
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            # No host meets `!*` alone, so the block stays and has no effect.
            config.parse(io.StringIO(EXEC.sub("Match host !*", text)))
        except FileNotFoundError:
            continue
        except (OSError, paramiko.SSHException) as error:
            raise LaunchError(f"{path}: {error}") from None
    return config


def _hop(target: ssh_client.Target, options: paramiko.SSHConfigDict) -> Hop:
    return Hop(
        host=target.host,
        port=target.port,
        user=target.user,
        keys=[ssh_client.expanded(key) for key in target.keys],
        key_name=target.key_name,
        command="" if target.jump else target.command,
        agent=options.get("identitiesonly", "no").lower() != "yes",
    )


CLIENT: ssh_client.SshClient = Paramiko()
