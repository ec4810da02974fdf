"""Check that the initial architecture can be trained at the batch size."""

from aiperf.cli.units import GIB
from aiperf.examination import Examination, MemoryFacts
from primary.doctor.contract import Evidence, Finding, Remark, together


def check_memory(evidence: Evidence) -> list[Finding]:
    """Check the memory by the estimate that limits the search, and by the probe."""
    if evidence.is_science:
        return [
            Finding(
                "memory",
                "not examined",
                "no estimate is made for scientific workloads",
                "a run of some minutes: --duration 5m",
            )
        ]
    return together("memory", [_remark(item, item.memory) for item in evidence.facts()])


def _remark(facts: Examination, memory: MemoryFacts | None) -> Remark:
    if memory is None:
        return Remark(
            facts.replica,
            "warning",
            "not estimated: the sizes of the data set are unknown (see data)",
            "aiperf doctor (after the failed checks)",
        )
    needed = f"the initial architecture needs about {memory.needed / GIB:.1f} GiB at batch {memory.batch}"
    if memory.refusal is not None and memory.limit is not None:
        smaller = f"--set training.batch_size={memory.largest_batch}"
        none = "--set search.initial_architecture=resnet50, or replica.accelerator_memory_gib if there is more"
        text = f"{needed}; a rank has {memory.limit / GIB:.1f} GiB"
        return Remark(facts.replica, "failed", text, smaller if memory.largest_batch > 0 else none)
    if facts.probe_kind == "out_of_memory":
        text = f"{needed} by the estimate, but the probe ran out of memory: {facts.probe_problem}"
        return Remark(facts.replica, "failed", text, f"--set training.batch_size={max(1, memory.batch // 2)}")
    if memory.limit is None:
        return Remark(facts.replica, "ok", f"{needed}; nothing is trained")
    total = memory.needed * facts.ranks
    if not facts.accelerators and total > memory.available:
        text = f"{needed} for each of {facts.ranks} rank(s); {memory.available / GIB:.1f} GiB are free now"
        return Remark(facts.replica, "warning", text, "ps aux --sort=-rss | head (on the node); end what is not needed")
    return Remark(facts.replica, "ok", f"{needed}; a rank has {memory.limit / GIB:.1f} GiB")
