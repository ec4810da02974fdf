"""Placement of the replicas: whole nodes, all CPUs and GPUs, as a run warns of it at its start."""

from primary.doctor.checks.partition import too_few_nodes
from primary.doctor.contract import Evidence, Finding, replicas_in_words
from primary.nodes.placement import PlacementCheck


def check_placement(evidence: Evidence) -> list[Finding]:
    """A run on parts of nodes is measured all the same, and its score is that of the parts."""
    nodes = {facts.replica: facts.node for facts in evidence.facts()}
    if not nodes:
        return []
    if too_few_nodes(evidence.config, evidence.partition):
        text = "the replicas cannot all have their nodes at once (see partition), so they were examined in turns"
        return [Finding("placement", "not examined", text, "aiperf doctor (with as many replicas as there are nodes)")]
    warnings = [text.partition("; ") for text in PlacementCheck(evidence.config, evidence.per_node).look(nodes)]
    found = [Finding("placement", "warning", text, remedy) for text, _, remedy in warnings]
    return found or [
        Finding("placement", "ok", f"{replicas_in_words(nodes)}: each has the share of its node that it should have")
    ]
