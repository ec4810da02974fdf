"""States of jobs, steps and nodes in words: pure functions over the output of squeue and sinfo."""

from dataclasses import dataclass

JOB_FORMAT = "%i|%j|%T|%r"
"""Format of squeue: id, name, state, reason."""

MEANINGS = {
    "BOOT_FAIL": "a node did not boot",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "its deadline has passed",
    "FAILED": "it ended with an error",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "it ran out of memory",
    "PENDING": "it waits in the queue",
    "PREEMPTED": "it was preempted by another job",
    "REQUEUED": "it was put back into the queue",
    "REQUEUE_HOLD": "it was put back into the queue and is held",
    "REVOKED": "another cluster took it",
    "SUSPENDED": "it is suspended",
    "TIMEOUT": "it reached its time limit",
}
"""States of jobs that have not ended well, in words."""

BROKEN_NODE_STATES = ("down", "drain", "fail", "not_resp", "unk", "power", "reboot")


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of one job or step."""

    id: str
    name: str
    state: str
    reason: str


NODES_FORMAT = "%P|%N|%T"
"""Format of `sinfo --Node`: partition (a star marks the default one), node, state."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of one node of a partition."""

    name: str
    state: str


def parse_nodes(output: str, partition: str | None) -> tuple[NodeState, ...]:
    """The nodes of a partition, or of the default one, from `sinfo --Node` with NODES_FORMAT."""
    rows = [line.strip().split("|") for line in output.splitlines() if line.count("|") == 2]
    chosen = [row for row in rows if (row[0].rstrip("*") == partition if partition else row[0].endswith("*"))]
    return tuple(NodeState(name, state) for _, name, state in chosen or ([] if partition else rows))


def parse_jobs(output: str) -> tuple[JobState, ...]:
    """The jobs in the output of `squeue --noheader` with JOB_FORMAT; other lines are left out."""
    rows = (line.strip().split("|", 3) for line in output.splitlines())
    return tuple(JobState(*row) for row in rows if len(row) == 4)


def job_in_words(jobs: tuple[JobState, ...]) -> str:
    """The reason why SLURM ended the newest of these jobs; empty if it did not."""
    if not jobs:
        return ""
    job = jobs[-1]
    meaning = MEANINGS.get(job.state)
    if meaning is None:
        return ""
    reason = f", reason {job.reason}" if job.reason not in ("None", "") else ""
    return f"SLURM job {job.id} is {job.state}: {meaning}{reason}"


def node_in_words(node: str, state: str) -> str:
    """The failure of a node from its state in sinfo (`%T`); empty if it works."""
    # A star marks a node that does not answer.
    broken = any(word in state.lower() for word in BROKEN_NODE_STATES) or state.endswith("*")
    return f"SLURM node {node} is {state.upper()}: a node failed" if broken else ""
