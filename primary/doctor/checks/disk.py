"""Space for the run, and whether every node sees the file system that the run is written to."""

from aiperf.cli.units import GIB
from aiperf.examination import Examination
from primary import preflight
from primary.doctor.contract import Evidence, Finding, Remark, together

WEIGHT_BYTES = 4
COPIES_IN_PROGRESS = 5
"""Copies of a trial's weights: weights and momentum in two checkpoints, and the best epoch's."""


def check_disk(evidence: Evidence) -> list[Finding]:
    """Problems here first; then what the nodes see, against what the run may write."""
    here = [
        Finding("disk", "failed", text, _remedy(text))
        for text in preflight.disk_problems(evidence.config, evidence.output)
    ]
    return [*here, *together("disk", [_remark(evidence, item) for item in evidence.facts()])]


def _remedy(problem: str) -> str:
    space = "too little" in problem
    return "--output DIR (on a file system with more space)" if space else "--output DIR (one that can be written)"


def _remark(evidence: Evidence, facts: Examination) -> Remark:
    if facts.folder_problem is not None or facts.free_bytes is None:
        text = f"{facts.node['host']} cannot write next to {evidence.output}: {facts.folder_problem}"
        return Remark(facts.replica, "failed", text, "--output DIR (on a file system that all nodes share)")
    words, config = f"{round(facts.free_bytes / GIB)} GiB are free", evidence.config
    if not facts.hard_links:
        words += " on a file system without hard links, which a run does without"
    if evidence.is_science:
        return Remark(facts.replica, "ok", words)
    copies = config.search.kept_weights + COPIES_IN_PROGRESS * config.run.replicas
    largest = (facts.parameters or 0) * config.search.max_growth * WEIGHT_BYTES
    may_gib = copies * largest / GIB
    words += f"; the weights of the largest architectures may take {may_gib:.1f} GiB"
    if round(facts.free_bytes / GIB) < may_gib:
        return Remark(facts.replica, "warning", words, "--set search.kept_weights=1, or --output DIR elsewhere")
    return Remark(facts.replica, "ok", words)
