"""The installed frameworks, and the devices that each sees."""

from __future__ import annotations

from aiperf.examination import Examination
from primary.doctor.findings import Finding, Said, together
from primary.doctor.node_answers import Evidence


def check_frameworks(evidence: Evidence) -> list[Finding]:
    """Name the framework that trains and all others; what is wrong with it is said by `devices`."""
    return together("frameworks", [_said(facts, evidence.config.training.framework) for facts in evidence.facts()])


def _said(facts: Examination, chosen: str) -> Said:
    own = facts.framework
    if own is None:
        trains = f"{chosen} trains"
    else:
        trains = f"{own.version} trains: {', '.join(own.devices) or 'no accelerators'}"
    others = "; ".join(facts.frameworks.values()) or "no other is installed, or none was looked for"
    return Said(facts.replica, "ok", f"{trains}; {others}")
