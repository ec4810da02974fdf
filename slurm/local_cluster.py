"""A real SLURM cluster of several nodes on one machine, for tests and rehearsals.

The system configuration is not touched. Each node is a slurmd daemon of this host with a name and
port of its own; all files are in one folder.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from aiperf.answers import ask_and_wait
from aiperf.clock import Clock
from aiperf.errors import AiperfError, EnvironmentNotReadyError, UsageError
from aiperf.host import this_host

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
PROGRAM_TIMEOUT_S = 60.0
LOOK_INTERVAL_S = 0.2
NODE_TIMEOUT_S = 10
"""Seconds without an answer after which the controller takes a node for dead."""

STANDS_FOR_GPUS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")

TOPOLOGY = ("CPUs=", "Boards=", "SocketsPerBoard=", "CoresPerSocket=", "ThreadsPerCore=")

SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/local/sbin"
DAEMONS = ("munged", "slurmctld", "slurmd")


class LocalClusterError(AiperfError):
    """A cluster that could not be started, with the reason or the folder of the logs."""


@dataclass(frozen=True)
class LocalCluster:
    """A cluster in a folder of this machine. Its nodes are n1, n2, ..."""

    folder: Path
    clock: Clock

    @property
    def configuration(self) -> Path:
        """The slurm.conf; SLURM's commands find the cluster by SLURM_CONF."""
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a command needs to talk to this cluster."""
        return {"SLURM_CONF": str(self.configuration)}

    def start(self, nodes: int, cpus: int | None, gpus: int = 0) -> None:
        """Start all daemons and wait until every node is idle.

        A step runs on all CPUs of this machine, however many CPUs are claimed. None for `cpus`:
        nodes have the CPUs of this machine, and as on real clusters a step is confined to those
        that its job has asked for. `gpus` are claimed; devices that any machine has stand for them.

        Raises UsageError for a folder in use, EnvironmentNotReadyError without SLURM or for a user
        without a name, LocalClusterError.
        """
        missing = [name for name in DAEMONS if _program(name) is None]
        if missing:
            raise EnvironmentNotReadyError([f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)"])
        if self.processes():
            raise UsageError(f"{self.folder}: a test cluster is running there; stop it first")
        _user()
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("munge", "state", *(f"n{number}" for number in range(1, nodes + 1))):
            (self.folder / name).mkdir(parents=True, mode=0o700)
        # Steps may run as another user, who must reach the configuration and munge's socket.
        self.folder.chmod(0o755)
        self.configuration.write_text(configuration(self.folder, nodes, cpus, gpus), encoding="utf-8")
        (self.folder / "gres.conf").write_text(
            f"Name=gpu File={','.join(STANDS_FOR_GPUS[:gpus])}\n" if gpus else "", encoding="utf-8"
        )
        self._start_munge()
        self._daemon("slurmctld", "-f", str(self.configuration), "-L", str(self.folder / "slurmctld.log"))
        for number in range(1, nodes + 1):
            self.start_node(f"n{number}")
        self._wait_until_idle(nodes)

    def start_node(self, name: str) -> None:
        """Start the daemon of one node."""
        self._daemon("slurmd", "-f", str(self.configuration), "-N", name, "-L", str(self.folder / name / "slurmd.log"))

    def kill_node(self, name: str) -> None:
        """Kill the daemon of a node, its steps and all their processes, like a power failure."""
        spool = str(self.folder / name)
        daemons = [p for p in self.processes() if any(spool in word for word in p.info["cmdline"] or [])]
        for process in [*daemons, *self._steps(name)]:
            _signal(process, signal.SIGKILL)

    def _steps(self, node: str | None = None) -> list[psutil.Process]:
        """The processes in job steps, on one node or on all, and the daemons of these steps."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter(["environ"]):
            # Processes of a step may have left its process group: the variables of SLURM stay with
            # them.
            environ = process.info["environ"] or {}
            name = environ.get("SLURMD_NODENAME")
            if environ.get("SLURM_CONF") == str(self.configuration) and name and node in (None, name):
                found.append(process)
        return [*filter(None, map(_step_daemon, found)), *found]

    def stop(self) -> None:
        """End all daemons and the processes that they have started, and remove the folder."""
        family = {*self._steps(), *self.processes()}
        for process in family:
            _signal(process, signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=STOP_TIMEOUT_S)
        for process in alive:
            _signal(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=STOP_TIMEOUT_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """The daemons and job steps of this cluster."""
        found = []
        for process in psutil.process_iter(["cmdline", "name", "environ"]):
            words, environ = process.info["cmdline"] or [], process.info["environ"] or {}
            daemon = process.info["name"] in (*DAEMONS, "slurmstepd")
            ours = any(str(self.folder) in word for word in words) or environ.get("SLURM_CONF") == str(
                self.configuration
            )
            if daemon and ours:
                found.append(process)
        return found

    def _start_munge(self) -> None:
        munge = self.folder / "munge"
        key = munge / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        munge.chmod(0o755)  # the socket is for all users; the key is not
        self._daemon(
            "munged",
            "--force",
            f"--key-file={key}",
            f"--socket={munge / 'socket'}",
            f"--pid-file={munge / 'pid'}",
            f"--log-file={munge / 'log'}",
            f"--seed-file={munge / 'seed'}",
        )

    def _daemon(self, name: str, *words: str) -> None:
        program = _program(name)
        assert program is not None
        answer = ask_and_wait([program, *words], PROGRAM_TIMEOUT_S, {**os.environ, **self.environment})
        if not answer.fine:
            raise LocalClusterError(f"{name} failed: {answer.reason}")

    def _wait_until_idle(self, nodes: int) -> None:
        end_s = self.clock.monotonic_s() + START_TIMEOUT_S
        while self.clock.monotonic_s() < end_s:
            answer = ask_and_wait(
                ["sinfo", "--noheader", "--Node", "--format=%T"], PROGRAM_TIMEOUT_S, {**os.environ, **self.environment}
            )
            shown = answer.output.split()
            if shown == ["idle"] * nodes:
                return
            self.clock.pause(LOOK_INTERVAL_S)
        raise LocalClusterError(f"the nodes are {shown} after {START_TIMEOUT_S:.0f} s; logs are in {self.folder}")


def configuration(folder: Path, nodes: int, cpus: int | None, gpus: int) -> str:
    """The slurm.conf of some nodes on this host, with claimed CPUs or the real ones, and GPUs."""
    host = this_host().name().split(".")[0]
    user = _user()
    controller, *ports = _free_ports(nodes + 1)
    lines = [
        "ClusterName=aiperf-test",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder / 'munge' / 'socket'}",
        "CredType=cred/munge",
        f"StateSaveLocation={folder / 'state'}",
        f"SlurmdSpoolDir={folder}/%n",
        f"SlurmctldPidFile={folder / 'slurmctld.pid'}",
        f"SlurmdPidFile={folder}/%n/slurmd.pid",
        # Control groups need root, and would be the machine's own.
        "ProctrackType=proctrack/linuxproc",
        f"TaskPlugin=task/{'affinity' if cpus is None else 'none'}",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        f"SelectTypeParameters={'CR_Core_Memory' if cpus is None else 'CR_CPU'}",
        "SchedulerType=sched/backfill",
        # The claimed CPUs count, whatever the machine has.
        "SlurmdParameters=config_overrides",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "ReturnToService=2",
        f"SlurmdTimeout={NODE_TIMEOUT_S}",
        "SlurmctldTimeout=30",
        "KillWait=5",
        "MinJobAge=300",
        "InactiveLimit=0",
        *(("GresTypes=gpu",) if gpus else ()),
    ]
    size = _real_cpus() if cpus is None else f"CPUs={cpus}"
    lines += _node_lines(host, ports, f"{size}{f' Gres=gpu:{gpus}' if gpus else ''}")
    lines.append("PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def _user() -> str:
    """The name of this user, by which SLURM's daemons know it. Raises EnvironmentNotReadyError."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        problem = f"user {os.getuid()} has no name on this machine, which SLURM needs: add it to /etc/passwd"
        raise EnvironmentNotReadyError([problem]) from None


def _real_cpus() -> str:
    """The sockets, cores and threads of this machine, as slurmd itself finds them."""
    program = _program("slurmd")
    assert program is not None
    answer = ask_and_wait([program, "-C"], PROGRAM_TIMEOUT_S)
    if not answer.fine:
        raise LocalClusterError(f"slurmd -C: {answer.reason}")
    words = answer.output.split()
    return " ".join(word for word in words if word.startswith(TOPOLOGY))


def _node_lines(host: str, ports: list[int], size: str) -> list[str]:
    return [
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} RealMemory=1024 {size}"
        for number, port in enumerate(ports, start=1)
    ]


def _free_ports(count: int) -> list[int]:
    # All are held open until the last one is bound: otherwise a port could come twice.
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")


def _step_daemon(process: psutil.Process) -> psutil.Process | None:
    """The daemon of a step, found from the first process of the step."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return parent if parent is not None and parent.name() == "slurmstepd" else None
    return None


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
