"""The plan of a replica's next training, and the candidates that are proposed ahead for it.

A candidate is proposed and stored while the training before runs, so that accelerators do not wait
for the search. It is used only if it still obeys all rules when its job comes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from aiperf.config.settings import RunConfig
from aiperf.config.space import Hyperparameters
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.files import remove, write_atomically
from aiperf.records.cursor import Cursor
from aiperf.records.lineage import trial_and_earlier
from aiperf.records.reading import states_of
from aiperf.run_directory.checksums import sealed
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import is_there
from aiperf.untrusted.reading import read_bounded
from aiperf.wire.messages import Job
from replica.search.choices import (
    Choices,
    Memory,
    Plan,
    checked_limits,
    initial_architecture,
    limits_of,
)
from replica.search.kept_weights import KeptWeights, delete_weights, find_weights
from replica.search.knowledge import Knowledge
from replica.search.observations import Summary
from replica.search.partitions import Partition
from replica.search.strategies.contract import Proposal, partition_key
from search_space.limits import Limits
from search_space.morphisms import MAX_MORPHS, MorphData, apply_all, morph_data, morph_from_data

# Candidates on disk.

log = logging.getLogger(__name__)


Head = tuple[Annotated[int, Field(ge=0)], Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]


OfParent = Callable[[Proposal], Hyperparameters | None]
"""Function that gives the hyperparameters of a proposal; None if its parent has no children."""

MOST_BYTES = 64 << 20
"""Most bytes of a candidate's file, which may name thousands of writers."""


class Candidate(BaseModel):
    """A candidate's file: the morphs from a stored architecture to the proposed one.

    `cursor` has the heads of all writers (`Cursor.heads`) that it was proposed from, together with
    the hyperparameters.
    """

    model_config = ConfigDict(frozen=True)

    hash: str
    parent: str
    morphs: tuple[MorphData, ...]
    hyperparameters: Hyperparameters
    cursor: dict[str, Head]


class Candidates:
    """The candidates of one replica: a file for the next round.

    The directory is shared, so a file that is read must pass the rules that a proposal obeys.
    """

    def __init__(
        self, replica: int, paths: RunPaths, knowledge: Knowledge, limits: Limits, partition: Partition
    ) -> None:
        self._replica = replica
        self._paths = paths
        self._knowledge = knowledge
        self._limits = limits
        self._partition = partition

    def save(self, round_number: int, plan: Plan) -> None:
        """Write the candidate of a round, in place of an earlier one and the last round's.

        Raises OSError.
        """
        proposal = plan.proposal
        if proposal.parent is None:
            raise ValueError("the initial architecture has no parent and cannot be a candidate")
        candidate = Candidate(
            hash=proposal.architecture.hash,
            parent=proposal.parent,
            morphs=tuple(morph_data(morph) for morph in proposal.morphs),
            hyperparameters=plan.hyperparameters,
            cursor=dict(plan.cursor.heads),
        )
        path = self._paths.candidate(self._replica, round_number)
        write_atomically(path, sealed(candidate.model_dump()) + b"\n")
        remove(self._paths.candidate(self._replica, round_number - 1))

    def load(self, round_number: int, of_parent: OfParent) -> Plan | None:
        """The candidate of a round, if there is one that can be used; another one is logged.

        It is intact, 1 to `MAX_MORPHS` morphs away from a parent that `of_parent` knows, has the
        hyperparameters that it gives for it, is within the limits and in the replica's partition,
        and was proposed since the replica started its last trial.
        """
        path = self._paths.candidate(self._replica, round_number)
        if not is_there(path):
            return None
        try:
            candidate = Candidate.model_validate_json(read_bounded(path, MOST_BYTES))
            proposal = self._proposal(candidate)
            hyperparameters = of_parent(proposal)
            if hyperparameters is None:
                raise ValueError(f"its parent {candidate.parent!r} is not a completed architecture of this run")
            if candidate.hyperparameters != hyperparameters:
                raise ValueError("its hyperparameters are not the best ones of its parent")
            cursor = Cursor(candidate.cursor)
            if not self._knowledge.is_current(cursor, self._replica):
                raise ValueError("it was not proposed since this replica's last start of a trial")
            return Plan(proposal, hyperparameters, cursor=cursor)
        except (OSError, ValueError, TypeError, AiperfError) as error:
            log.error("candidate %s is not used: %s", path, error)
            return None

    def _proposal(self, candidate: Candidate) -> Proposal:
        """The proposal that a file describes.

        Raises AiperfError, ValueError, or TypeError for a morph with a value of another type.
        """
        if not 1 <= len(candidate.morphs) <= MAX_MORPHS:
            raise ValueError(f"it has {len(candidate.morphs)} morphs, not 1 to {MAX_MORPHS}")
        morphs = tuple(morph_from_data(data) for data in candidate.morphs)
        architecture = apply_all(self._knowledge.load(candidate.parent), morphs)
        if architecture.hash != candidate.hash:
            raise ValueError(f"its morphs make {architecture.hash}, not {candidate.hash}")
        if (refusal := self._limits.refusal(architecture)) is not None:
            raise ValueError(f"it has {refusal}")
        if not self._partition.holds(partition_key(architecture)):
            raise ValueError("it is in the partition of another replica")
        return Proposal(architecture, candidate.parent, morphs)


__all__ = [
    "Memory",
    "Plan",
    "Planner",
    "checked_limits",
    "initial_architecture",
    "limits_of",
]


Work = Callable[[Callable[[], None]], float]
"""Function that runs an action, and gives the CPU seconds that it took."""

GROWTH = 1.05
"""Growth of the number of results that makes a candidate stale: fewer would hardly change it."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The proposals ahead for one round: the evidence of the last one, and the cost of all."""

    round: int = 0
    known: Summary | None = None
    cpu_s: float = 0.0

    def is_due(self, now: Summary, allowed_s: float, last: bool) -> bool:
        """True if a candidate is to be proposed; `allowed_s` are CPU seconds of the whole round."""
        if self.known is None or now == self.known:
            return self.known is None
        if last:
            return True
        grew = now.completed > self.known.completed and now.completed >= GROWTH * self.known.completed
        return (grew or now.best != self.known.best) and self.cpu_s <= allowed_s

    def proposed(self, known: Summary, cpu_s: float) -> Ahead:
        """The state after one more proposal."""
        return Ahead(self.round, known, self.cpu_s + cpu_s)


def measured(action: Callable[[], None]) -> float:
    """Run an action; give the CPU seconds that this thread took for it."""
    # Time of this thread alone: the machine's other work must not use up the search's share.
    began_s = time.thread_time()
    action()
    return time.thread_time() - began_s


class Planner:
    """The planner of one replica's trainings. Its methods may be called from several threads.

    Planners of one process may share their knowledge; without one it reads the history list for
    itself. `work` makes the proposals ahead, whose cost is bounded. Raises
    EnvironmentNotReadyError if the initial architecture is beyond the limits.
    """

    def __init__(
        self,
        replica: int,
        config: RunConfig,
        paths: RunPaths,
        memory: Memory,
        knowledge: Knowledge | None = None,
        work: Work = measured,
    ) -> None:
        self._replica = replica
        self._config = config
        self._paths = paths
        self._knowledge = knowledge or Knowledge(paths)
        self._choices = Choices(replica, config, paths, memory, self._knowledge)
        self._candidates = Candidates(replica, paths, self._knowledge, self._choices.limits, self._choices.partition)
        self._work = work
        self._ahead = Ahead()

    @property
    def memory_bytes(self) -> int | None:
        """Memory of an accelerator that limits the search; None: unknown."""
        return self._choices.limits.memory_bytes

    def plan(self, job: Job) -> Plan:
        """The training of a job (`Choices.training`). Raises TrialFailedError, OSError.

        The kind is "search", or "superseded" if the job is of a primary that has a successor.
        A round's own training takes the architecture that was proposed ahead if it is still new.
        """
        with self._knowledge.unchanged():
            self._knowledge.follow(job.digest)
            self._knowledge.read()
            if self._knowledge.is_superseded(job.claim):
                raise TrialFailedError("superseded", f"another primary has the run: claim {job.claim} is not the last")
            plan = self._choices.training(job, self._prepared)
            # Before the record of the start, which names the architecture by its hash alone.
            self._knowledge.save(plan.proposal.architecture)
            return replace(plan, repeats=plan.training in self._knowledge.trainings())

    def still_new(self, plan: Plan, job: Job) -> bool:
        """True unless a replica has started the same training since it was planned.

        A plan made ahead is not for the trial that is to train the initial architecture.
        """
        with self._knowledge.unchanged():
            self._knowledge.read()
            if self._knowledge.is_superseded(job.claim):
                return False
            is_initial = plan.proposal.architecture == self._choices.initial and not plan.repeats
            # The initial architecture is trained exactly when it is due: it neither gives way to a
            # candidate nor comes again because a plan was made ahead.
            if job.point == 0 and job.resumes is None and (is_initial or self._choices.initial_is_due(job)):
                return is_initial and self._choices.initial_is_due(job)
            return plan.repeats or plan.training not in self._knowledge.trainings()

    def propose_ahead(self, round_number: int, elapsed_s: float = math.inf, last: bool = False) -> None:
        """Store a candidate for a later round, if it is due.

        The first one of a round is due. A later one is if the best result changed or the results
        grew by `GROWTH`, as long as all of the round took at most `search.cpu_share` of the seconds
        elapsed. The last one is if there is any new evidence. A strategy that learns nothing needs
        only the first.
        """
        with self._knowledge.unchanged():
            self._knowledge.read()
            # A summary is compared, not the evidence: most looks find nothing new, and must cost
            # nothing.
            known, ahead = self._knowledge.summary(), self._ahead
            if ahead.round != round_number:
                ahead = Ahead(round_number)
            due = ahead.is_due(known, elapsed_s * self._config.search.cpu_share, last)
            if due and (self._choices.learns or ahead.known is None):
                ahead = ahead.proposed(known, self._work(partial(self._propose, round_number)))
            self._ahead = ahead

    def _propose(self, round_number: int) -> None:
        self._candidates.save(round_number, self._choices.proposed(round_number, self._knowledge.observations()))

    def note_start(self, trial: int) -> None:
        """Note that this replica has recorded the start of a trial."""
        self._knowledge.note_start(self._replica, trial)

    def knows_last_start(self) -> bool:
        """True if a look shows the last start of a trial that was noted.

        What is planned before that would not take it into account.
        """
        with self._knowledge.unchanged():
            self._knowledge.read()
            return self._knowledge.knows_last_start(self._replica)

    def distrust_digest(self, reason: str) -> None:
        """Read the raw records in place of the digest."""
        self._knowledge.distrust(reason)

    def earlier_qualities(self, job: Job) -> dict[int, float]:
        """The quality after each epoch, by epoch, of the trials that a job resumes.

        The trainer may repeat the last ones: its checkpoint may be of an earlier epoch.
        """
        if job.resumes is None:
            return {}
        self._knowledge.read()
        return self._knowledge.qualities(job.resumes)

    def resumed_by(self, job: Job) -> tuple[int, ...]:
        """The trials that a job resumes, directly or through others, the latest first."""

        def resumed(trial: int) -> int | None:
            started = self._knowledge.started(trial)
            return started.resumes if started is not None else None

        return tuple(trial_and_earlier(job.resumes, resumed))

    def recorded_states(self, trials: Iterable[int]) -> tuple[str, ...]:
        """The hashes of the states in the records of trials."""
        started = {trial: start.replica for trial in trials if (start := self._knowledge.started(trial)) is not None}
        return states_of(self._paths, started)

    def weights_for(self, proposal: Proposal) -> KeptWeights | None:
        """Kept weights of the proposal's parent, if children inherit and there are any."""
        if self._config.search.initial_weights != "inherit" or not proposal.morphs:
            return None  # the initial architecture, or one whose kernels were tuned: no morphs lead to it
        with self._knowledge.unchanged():
            return find_weights(self._knowledge.outcomes().of_architecture(str(proposal.parent)), self._paths)

    def prune_weights(self) -> None:
        """Delete this replica's weights of all but the `search.kept_weights` best trials."""
        self._knowledge.read()
        with self._knowledge.unchanged():
            worse = self._knowledge.outcomes().worse_than(self._config.search.kept_weights, self._replica)
        delete_weights(worse, self._paths)

    def _prepared(self, round_number: int) -> Plan | None:
        """The candidate of a round, if there is one that can be used and is still new."""
        plan = self._candidates.load(round_number, self._choices.of_parent)
        # Another replica may have trained the same architecture since it was proposed.
        tried = self._knowledge.outcomes().first
        return None if plan is None or plan.proposal.architecture.hash in tried else plan
