"""The installed frameworks, and the devices that each sees."""

from aiperf.examination import Examination
from primary.doctor.contract import Evidence, Finding, Remark, together


def check_frameworks(evidence: Evidence) -> list[Finding]:
    """Name the framework that trains and all others; what is wrong with it is said by `devices`."""
    training = evidence.config.training
    idle = f"{training.framework} trains nothing here (see nodes and devices)"
    if training.trainer != "keras":
        idle = "none trains: the trainer is simulated"
    return together("frameworks", [_remark(facts, idle) for facts in evidence.facts()])


def _remark(facts: Examination, idle: str) -> Remark:
    own = facts.framework
    trains = idle if own is None else f"{own.version} trains: {', '.join(own.devices) or 'no accelerators'}"
    others = "; ".join(facts.frameworks.values()) or "no other is installed, or none was looked for"
    return Remark(facts.replica, "ok", f"{trains}; {others}")
