"""Accelerators as the driver and as the framework see them."""

from collections import Counter

from aiperf.cli.packages import to_install
from aiperf.config.frameworks import TRAITS
from aiperf.config.settings import RunConfig
from aiperf.examination import Examination, FrameworkFacts
from aiperf.facts import NOT_COMPILED
from aiperf.machine.accelerators import SILENT, SILENT_REMEDY
from primary.doctor.contract import Evidence, Finding, Remark, together

COMPILERS = (
    "see the reason; compilers for GPUs need a C compiler and Python's headers (apt-get install gcc python3-dev)"
)


def check_devices(evidence: Evidence) -> list[Finding]:
    """A framework that does not find what the driver has would train on the CPU."""
    if evidence.config.training.trainer != "keras":
        return [Finding("devices", "ok", "none is used: the trainer is simulated")]
    config = evidence.config
    return together("devices", [_remark(item, config) for item in evidence.facts()])


def _remark(facts: Examination, config: RunConfig) -> Remark:
    chosen = config.training.framework
    own, again = TRAITS[chosen], f"python -m replica.agent.examine.framework {chosen} (on the node, for its messages)"
    if facts.framework_problem is not None:
        return Remark(facts.replica, "failed", f"{own.title} cannot be loaded: {facts.framework_problem}", again)
    if facts.framework is None:
        return Remark(facts.replica, "warning", "not examined: the node cannot work (see nodes)", "aiperf doctor")
    if facts.exclusive and config.replica.warm_up:
        text = "an accelerator is in exclusive-process mode: the next trial's ranks do not warm up next to others"
        return Remark(facts.replica, "warning", text, "nvidia-smi -c DEFAULT (as root)")
    devices, configured = facts.framework.devices, config.replica.accelerator_memory_gib
    if devices and not facts.node["accelerators"] and configured is None:
        text = f"{facts.framework.version} sees {_counted(devices)}: {SILENT}"
        return Remark(facts.replica, "failed", text, SILENT_REMEDY)
    return _compared(facts, facts.framework, (to_install(own.gpu_extra), again))


def _compared(facts: Examination, framework: FrameworkFacts, remedies: tuple[str, str]) -> Remark:
    build, again = remedies
    driver, seen = int(facts.node["accelerators"] or 0), len(framework.devices)
    own = _counted(facts.accelerators)
    words = f"{own} by the driver ({driver} on the node), {seen} by {framework.version}"
    if driver and not seen:
        return Remark(facts.replica, "failed", f"{words}: the ranks would train on the CPU", build)
    if driver and facts.probe is not None and "cpu" in facts.probe.devices:
        return Remark(facts.replica, "failed", f"{words}; a rank of the probe computed on the CPU", again)
    if driver != seen:
        return Remark(facts.replica, "warning", words, again)
    if facts.probe is not None and NOT_COMPILED.search(facts.probe.compiled or ""):
        text = f"{words}; a part of the steps could not be compiled, and is slower: {facts.probe.compiled}"
        return Remark(facts.replica, "warning", text, COMPILERS)
    if not driver:
        return Remark(facts.replica, "ok", f"no accelerators: trains on the CPU ({framework.version})")
    return Remark(facts.replica, "ok", words)


def _counted(names: tuple[str, ...]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items()) or "none"
