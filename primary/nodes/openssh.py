"""OpenSSH's own client: what `ssh HOST` takes, AIPerf takes.

Its configuration, keys, agent, certificates, known hosts and jump hosts are OpenSSH's.
"""

import math
import os
from functools import cache

from aiperf.config.sections.cluster import SshSection
from aiperf.errors import LaunchError
from primary.nodes import ssh_client

SILENCE_S = 3600.0
"""AIPerf itself finds out whether a host is silent (`run.replica_silence`)."""

# ssh takes the first value that it finds for an option (ssh_config(5)), so these lines stand before
# the user's. A session without a terminal can answer no question: every method that asks is off.
_SETTINGS = """\
IgnoreUnknown StdinNull,ForkAfterAuthentication,SessionType
BatchMode yes
StrictHostKeyChecking yes
UpdateHostKeys no
PasswordAuthentication no
ClearAllForwardings yes
ForwardAgent no
ForwardX11 no
PermitLocalCommand no
RemoteCommand none
RequestTTY no
StdinNull no
ForkAfterAuthentication no
SessionType default
ControlMaster no
LogLevel INFO
"""


class OpenSsh:
    """The program ssh."""

    def command(self, name: str, settings: SshSection) -> list[str]:
        """The words of ssh for a host. Raises LaunchError."""
        return ["ssh", "-F", _configuration(settings), *ssh_client.words_of(name)]

    def find_target(self, name: str, settings: SshSection) -> ssh_client.Target:
        """The options of a host, by `ssh -G`. Raises LaunchError."""
        done = ssh_client.run(["ssh", "-G", *self.command(name, settings)[1:]])
        if not done.fine:
            raise LaunchError(f"{name}: {done.reason}")
        found: dict[str, list[str]] = {}
        for line in done.output.splitlines():
            key, _, value = line.partition(" ")
            found.setdefault(key, []).append(value)
        one = {key: values[0] for key, values in found.items()}
        jump, command = one.get("proxyjump", "none"), one.get("proxycommand", "none")
        return ssh_client.Target(
            name,
            host=one.get("hostname", name),
            port=int(one.get("port", ssh_client.DEFAULT_PORT)),
            user=one.get("user", ""),
            keys=tuple(found.get("identityfile", ())),
            jump="" if jump == "none" else jump,
            command="" if command == "none" else command,
            alias=one.get("hostkeyalias", ""),
        )


@cache
def _configuration(settings: SshSection) -> str:
    """A configuration that adds AIPerf's settings to the user's: jump hosts take it, too."""
    count = math.ceil(SILENCE_S / max(1.0, settings.keep_alive))
    lines = [
        _SETTINGS,
        f"ConnectTimeout {max(1, math.ceil(settings.connect_timeout))}\n",
        f"ServerAliveInterval {max(1, round(settings.keep_alive))}\nServerAliveCountMax {count}\n",
    ]
    if settings.known_hosts != ssh_client.DEFAULTS.known_hosts:
        lines.append(f'UserKnownHostsFile "{ssh_client.expanded(settings.known_hosts)}"\n')
    lines.append(f'Include "{ssh_client.expanded(settings.config_file)}"\n')
    if settings.config_file == ssh_client.DEFAULTS.config_file:
        lines.append(f"Include {ssh_client.SYSTEM_CONFIG}\n")
    # A file without a name: nothing is left behind, whatever happens to TMPDIR or to this process.
    # Kept open as long as this process lives: every ssh that it starts, and those for jump hosts,
    # read the configuration by this path.
    descriptor = os.memfd_create("ssh_config")
    os.write(descriptor, "".join(lines).encode(errors="surrogateescape"))
    return f"/proc/{os.getpid()}/fd/{descriptor}"


CLIENT: ssh_client.SshClient = OpenSsh()
