"""The ranks of a training: their starter, Horovod and its build, the node's own name."""

from ipaddress import ip_address

from aiperf.config.datasets import IMAGENET
from aiperf.config.frameworks import TRAITS
from aiperf.examination import Examination
from primary.doctor.contract import Evidence, Finding, Remark, Status, together

_HOROVOD = "make horovod (in the folder of AIPerf's sources, on the node); or --set replica.ranks=1"
_OWN_ADDRESS = "$(hostname -I | cut -d' ' -f1)"
_NEEDED = {"horovodrun": "gloo", "mpirun": "mpi"}


def check_ranks(evidence: Evidence) -> list[Finding]:
    """One rank needs nothing; several need a starter, and Horovod built for it."""
    if evidence.config.training.trainer != "keras":
        return [Finding("ranks", "ok", "one process stands for all ranks: the trainer is simulated")]
    uses_horovod = TRAITS[evidence.config.training.framework].takes_horovod
    large = evidence.config.run.dataset == IMAGENET.name and not evidence.is_science
    interface = evidence.config.replica.interface
    return together(
        "ranks",
        [
            remark
            for facts in evidence.facts()
            for remark in (*_remark(facts, uses_horovod, interface), *_too_many(facts, large))
        ],
    )


def _too_many(facts: Examination, large: bool) -> list[Remark]:
    """Find more ranks than devices; several ranks without a device are for small data only."""
    devices = len(facts.accelerators) * facts.nodes
    if facts.ranks <= max(1, devices):
        return []
    if not devices:
        text = f"{facts.ranks} ranks, and the driver shows no accelerator: they would train on the CPU"
        return [
            Remark(
                facts.replica,
                "failed" if large else "warning",
                text,
                "nvidia-smi (on the node: does the driver answer?); or leave replica.ranks out",
            )
        ]
    text = f"{facts.ranks} ranks need as many accelerators; the driver shows {devices}"
    return [Remark(facts.replica, "failed", text, f"--set replica.ranks={devices}; nvidia-smi (are some missing?)")]


def _remark(facts: Examination, uses_horovod: bool, interface: str | None) -> list[Remark]:
    if facts.ranks == 1:
        return [Remark(facts.replica, "ok", "1 rank, which needs no Horovod")]
    problems: list[tuple[Status, str, str]] = []
    if facts.starter_problem is not None:
        problems.append(("failed", f"{facts.ranks} ranks: {facts.starter_problem}", _starter_remedy(facts)))
    if facts.framework is not None and uses_horovod:
        problems += _horovod(facts)
    if facts.nodes > 1 and interface is not None and facts.interfaces and interface not in facts.interfaces:
        there = ", ".join(facts.interfaces)
        text = f"{facts.node['host']} has no interface {interface} with an address; it has {there}"
        problems.append(("failed", text, "ip address (on the node); --set replica.interface=NAME, or leave it out"))
    if facts.address is None:
        needed: Status = "failed" if facts.starter == "horovodrun" else "warning"
        text = f"{facts.node['host']} cannot resolve its own name: Horovod's Gloo crashes"
        problems.append((needed, text, f'echo "{_OWN_ADDRESS} $(hostname)" >> /etc/hosts (as root, on the node)'))
    elif facts.nodes > 1 and interface is None and ip_address(facts.address.partition("%")[0]).is_loopback:
        text = f"{facts.node['host']} takes its own name for {facts.address}, where other nodes cannot reach its ranks"
        remedy = f'sed -i "s/^127\\.0\\.1\\.1/{_OWN_ADDRESS}/" /etc/hosts (as root, on the node)'
        problems.append(("failed", text, f"{remedy}; or --set replica.interface=NAME"))
    if problems:
        return [Remark(facts.replica, *problem) for problem in problems]
    if not uses_horovod:
        return [Remark(facts.replica, "ok", f"{facts.ranks} ranks by {facts.starter}, joined by the framework itself")]
    built = ", ".join(facts.framework.built_for) if facts.framework is not None else "unknown"
    return [Remark(facts.replica, "ok", f"{facts.ranks} ranks by {facts.starter}; Horovod is built for {built}")]


def _starter_remedy(facts: Examination) -> str:
    if "not installed" not in (facts.starter_problem or ""):
        return f"--set replica.rank_starter=auto, or --set replica.ranks={facts.nodes}"
    return _HOROVOD if facts.starter == "horovodrun" else "apt-get install openmpi-bin (as root, on the node)"


def _horovod(facts: Examination) -> list[tuple[Status, str, str]]:
    framework = facts.framework
    assert framework is not None
    if framework.horovod is None:
        why = framework.horovod_problem
        text = f"cannot be loaded: {why}" if why else f"is not installed for the Python of {facts.node['host']}"
        return [("failed", f"{facts.ranks} ranks need Horovod, which {text}", _HOROVOD)]
    found: list[tuple[Status, str, str]] = []
    needed = _NEEDED.get(facts.starter)
    if needed is not None and needed not in framework.built_for:
        text = f"{facts.starter} needs Horovod built for {needed}; it is built for {', '.join(framework.built_for)}"
        found.append(("failed", text, _HOROVOD))
    if facts.accelerators and "nccl" not in framework.built_for:
        text = "Horovod is built without NCCL: gradients travel through main memory"
        found.append(("warning", text, "HOROVOD_GPU_OPERATIONS=NCCL make horovod (on the node)"))
    return found
