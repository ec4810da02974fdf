"""Checks by name, in the order in which they are printed. Register a new check here."""

from collections.abc import Callable

from aiperf.registry import Registry
from primary.doctor.contract import Evidence, Finding

Check = Callable[[Evidence], list[Finding]]
"""Looks at the evidence and says what it means; at least one finding, also if all is well."""

CHECKS: Registry[Check] = Registry(
    "check",
    {
        "rules": "primary.doctor.checks.rules:check_rules",
        "installation": "primary.doctor.checks.installation:check_installation",
        "primary": "primary.doctor.checks.primary:check_primary",
        "partition": "primary.doctor.checks.partition:check_partition",
        "nodes": "primary.doctor.checks.nodes:check_nodes",
        "placement": "primary.doctor.checks.placement:check_placement",
        "devices": "primary.doctor.checks.devices:check_devices",
        "frameworks": "primary.doctor.checks.frameworks:check_frameworks",
        "ranks": "primary.doctor.checks.ranks:check_ranks",
        "data": "primary.doctor.checks.data:check_data",
        "memory": "primary.doctor.checks.memory:check_memory",
        "disk": "primary.doctor.checks.disk:check_disk",
        "clocks": "primary.doctor.checks.clocks:check_clocks",
        "description": "primary.doctor.checks.description:check_description",
        "estimate": "primary.doctor.checks.estimate:check_estimate",
    },
)


def findings_of(evidence: Evidence) -> list[Finding]:
    """The findings of all checks; one that no node could answer says so."""
    return [finding for name in CHECKS for finding in CHECKS.load(name)(evidence) or [_unanswered(name)]]


def _unanswered(check: str) -> Finding:
    return Finding(check, "warning", "not examined: no node has answered", "aiperf doctor (after the failed checks)")
