"""Candidates on disk: trainings that were proposed ahead, for a later round of a replica."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from aiperf.config.space import Hyperparameters
from aiperf.errors import AiperfError
from aiperf.files import remove, write_atomically
from aiperf.records.cursor import Cursor
from aiperf.run_directory.checksums import sealed
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import is_there
from aiperf.untrusted.reading import read_bounded
from replica.search.choices import Plan
from replica.search.knowledge import Knowledge
from replica.search.partitions import Partition
from replica.search.strategies.contract import Proposal, partition_key
from search_space.limits import Limits
from search_space.morph_json import MorphData, apply_all, morph_data, morph_from_data
from search_space.morphisms import MAX_MORPHS

log = logging.getLogger(__name__)


Head = tuple[Annotated[int, Field(ge=0)], Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]


OfParent = Callable[[str], Hyperparameters | None]
"""The hyperparameters of an architecture's children; None if a candidate cannot be one."""

MOST_BYTES = 64 << 20
"""Of a candidate's file, which names all writers."""


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
            hyperparameters = of_parent(candidate.parent)
            if hyperparameters is None:
                raise ValueError(f"its parent {candidate.parent!r} is not a completed architecture of this run")
            proposal = self._proposal(candidate)
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
