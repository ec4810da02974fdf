"""The setup of a replica's ranks, and the command that starts them for a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiperf.config.frameworks import TRAITS
from aiperf.config.settings import RunConfig
from aiperf.machine.addresses import address_of
from aiperf.ranks import FIRST_LOCAL_RANK
from replica.agent.trial.requests import check_groups, check_messages, servers_of
from replica.trainer.collectives.rank import free_ports, meeting_point
from replica.trainer.programs import TRAINERS
from replica.trainer.settings import GroupPlaces, RankSettings, TelemetrySettings
from replica.trainer.starters import STARTERS, RankRequest, choose_starter
from replica.trainer.starters.groups import Groups, Program, start_groups

INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables that choose the network of Gloo and NCCL."""

LEAST_EXCHANGE_LIMIT_S = 1800.0
"""Least limit of an exchange of tensors, which is Gloo's own.

The limit is at least twice `replica.trial_silence`: a rank that the others wait for is missed by
the agent first, which knows the cause, although each of a rank's waits for storage is told of.
"""

ON_THIS_NODE = ("none", "processes")
"""Starters that start ranks of this node alone."""


@dataclass(frozen=True)
class RankSetup:
    """The setup that all ranks of this replica have in common, whatever they train."""

    config: RunConfig
    ranks: int = 1
    cpu_threads: int = 1
    hosts: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    telemetry: TelemetrySettings | None = None
    accelerator_part: float = 1.0
    """Part of its accelerator's memory that a rank may take."""
    sharers: int = 1
    """Replicas whose ranks compute on this replica's accelerators."""

    @property
    def servers(self) -> int:
        """Number of parameter servers of a training, in addition to `ranks`."""
        return servers_of(self.config)

    @property
    def groups(self) -> tuple[_Group, ...]:
        """The groups of ranks that are started by themselves: one unless training is hybrid.

        Raises TrialFailedError ("unfit") if they cannot share the ranks and nodes evenly.
        """
        count = self.config.training.groups
        check_groups(count, self.ranks, len(self.hosts))
        size, nodes = self.ranks // count, len(self.hosts)
        if count <= nodes:
            each = nodes // count
            return tuple(_Group(size, self.hosts[each * group : each * (group + 1)]) for group in range(count))
        shared = count // max(1, nodes)
        """Groups of a node."""
        return tuple(
            _Group(size, self.hosts[group // shared : group // shared + 1], size * (group % shared))
            for group in range(count)
        )

    def command(self, channel: str) -> tuple[list[str], dict[str, str]]:
        """The command line that starts all ranks, and the environment that it needs.

        Raises ValueError if the starter cannot do that, and TrialFailedError ("unfit") if this
        machine cannot train in groups.
        """
        groups = self.groups
        # A rank that waits for storage reports nothing: it gives up before it is taken for hung.
        patience_s = min(self.config.storage.patience, 0.9 * self.config.replica.trial_silence)
        settings = RankSettings(
            channel=channel,
            ranks=groups[0].ranks,
            cpu_threads=self.cpu_threads,
            accelerator_part=self.accelerator_part,
            sharers=self.sharers,
            exchange_limit_s=max(LEAST_EXCHANGE_LIMIT_S, 2 * self.config.replica.trial_silence),
            takes_unlisted=self.config.replica.accelerator_memory_gib is not None,
            telemetry=self.telemetry,
            patience_s=patience_s,
        )
        program = TRAINERS.load(self.config.training.trainer)(settings, self.config)
        if program.is_whole_group:
            return list(program.command), self.environment
        if not self.servers:
            started = self._started(groups[0], settings, self.environment)
            return list(started.command), {**self.environment, **started.environment}
        check_messages()
        # Processes inherit the keys: everybody can read command lines.
        environment = {**self.environment, **(_new_keys() if self.hosts else {})}
        return start_groups(self._with_servers(groups, settings, environment)), environment

    def _with_servers(
        self, groups: tuple[_Group, ...], settings: RankSettings, environment: Mapping[str, str]
    ) -> Groups:
        """The programs of all groups, and of the servers on this node."""
        places = self._places(settings.channel)
        settings = settings.model_copy(update={"places": places})
        servers = [
            TRAINERS.load(self.config.training.trainer)(settings.model_copy(update={"number": number}), self.config)
            for number in places.server_numbers
        ]
        return Groups(
            groups=tuple(
                self._started(group, settings.model_copy(update={"number": number}), environment)
                for number, group in enumerate(groups)
            ),
            servers=tuple(Program(command=server.command) for server in servers),
            places=places,
        )

    def _places(self, channel: str) -> GroupPlaces:
        """The addresses of root 0 and the servers: local sockets, or ports with several nodes."""
        groups = self.config.training.groups
        listening = [0, *range(groups, groups + self.servers)]
        if self.hosts:
            own, ports = self._own_address(), free_ports(len(listening))
            addresses = {number: f"tcp://{own}:{port}" for number, port in zip(listening, ports, strict=True)}
        else:
            addresses = {number: f"ipc://@{channel}{number:04x}" for number in listening}
        return GroupPlaces(
            groups=groups,
            servers=self.servers,
            addresses=addresses,
            interface=self._interface(self.hosts),
            server_grace_s=self.config.training.server_grace,
        )

    def _own_address(self) -> str:
        """The address of this node on the network between the nodes."""
        interface = self._interface(self.hosts)
        return (address_of(interface) if interface is not None else None) or self.hosts[0]

    def _started(self, group: _Group, settings: RankSettings, environment: Mapping[str, str]) -> Program:
        """The command that starts a group's ranks, and what each needs beyond this environment."""
        own = self._network(group)
        if group.first_local_rank:
            own[FIRST_LOCAL_RANK] = str(group.first_local_rank)
        program = TRAINERS.load(self.config.training.trainer)(settings, self.config)
        return Program(command=tuple(self.start(group, program.command, {**environment, **own})), environment=own)

    def start(self, group: _Group, command: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
        """The command line that starts a command as each rank of a group.

        Raises ValueError if the group's starter cannot do that.
        """
        starter, hosts = self.starter_of(group), group.hosts
        own = TRAITS[self.config.training.framework]
        if starter == "processes" and own.takes_horovod and group.ranks > 1:
            raise ValueError("Horovod cannot join plain processes: choose horovodrun or mpirun")
        if starter == "horovodrun" and self.servers and self.hosts:
            raise ValueError("horovodrun would show the keys of the groups on command lines: choose mpirun")
        if hosts and hosts[0] != self.hosts[0] and starter in ON_THIS_NODE:
            raise ValueError(f"the starter '{starter}' starts ranks of this node, not of {hosts[0]}")
        # A group of this node alone is started without a way to other nodes.
        hosts = () if hosts == self.hosts[:1] and len(self.hosts) > 1 else hosts
        request = RankRequest(command, group.ranks, hosts, environment, interface=self._interface(hosts))
        return STARTERS.load(starter)(request)

    def starter_of(self, group: _Group) -> str:
        """The name of a group's starter; one on another node needs one that reaches it."""
        elsewhere = bool(group.hosts) and group.hosts[0] != self.hosts[0]
        configured, framework = self.config.replica.rank_starter, self.config.training.framework
        ranks, nodes = (max(2, group.ranks), 2) if elsewhere else (group.ranks, len(self.hosts))
        return choose_starter(configured, ranks, nodes, framework)

    def _interface(self, hosts: tuple[str, ...]) -> str | None:
        """Name of the network interface between the nodes of several."""
        return self.config.replica.interface if hosts else None

    def _network(self, group: _Group) -> dict[str, str]:
        """Variables with the address where the ranks of a group meet, and their interface.

        Horovod has a meeting point of its own.
        """
        own, interface = TRAITS[self.config.training.framework], self._interface(self.hosts)
        meeting = meeting_point(group.hosts) if group.ranks > 1 and not own.takes_horovod else {}
        return meeting if interface is None else {**meeting, **dict.fromkeys(INTERFACE_VARIABLES, interface)}


def _new_keys() -> dict[str, str]:
    """Variables with the keys of one training over several nodes."""
    from replica.trainer.servers.zeromq import Keys  # noqa: PLC0415  (may not be installed)

    return Keys.new().variables()


@dataclass(frozen=True, slots=True)
class _Group:
    """The ranks that one starter starts together."""

    ranks: int
    hosts: tuple[str, ...]
    first_local_rank: int = 0
    """Number of ranks that other groups have on the node before these."""
