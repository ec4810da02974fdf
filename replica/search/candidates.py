"""Candidates on disk: architectures that were proposed ahead, for a later round of a replica."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection

from pydantic import BaseModel, ConfigDict

from aiperf.errors import AiperfError
from aiperf.files import write_atomically
from aiperf.run_directory.paths import RunPaths
from replica.search.knowledge import Knowledge
from replica.search.lanes import Lane
from replica.search.strategies.contract import MAX_MORPHS, Proposal, lane_key
from search_space.limits import Limits
from search_space.morph_json import MorphData, apply_all, morph_data, morph_from_data

log = logging.getLogger(__name__)


class Candidate(BaseModel):
    """A candidate's file: the morphs from a stored architecture to the proposed one."""

    model_config = ConfigDict(frozen=True)

    hash: str
    parent: str
    morphs: tuple[MorphData, ...]


class Candidates:
    """The candidates of one replica, one file per round.

    The directory is shared, so a file that is read must pass the rules that a proposal obeys.
    """

    def __init__(self, replica: int, paths: RunPaths, knowledge: Knowledge, limits: Limits, lane: Lane) -> None:
        self._replica = replica
        self._paths = paths
        self._knowledge = knowledge
        self._limits = limits
        self._lane = lane

    def save(self, round_number: int, proposal: Proposal) -> None:
        """Write the candidate of a round, in place of an earlier one. Raises OSError."""
        if proposal.parent is None:
            raise ValueError("the initial architecture has no parent and cannot be a candidate")
        morphs = tuple(morph_data(morph) for morph in proposal.morphs)
        candidate = Candidate(hash=proposal.architecture.hash, parent=proposal.parent, morphs=morphs)
        path = self._paths.candidate(self._replica, round_number)
        write_atomically(path, json.dumps(candidate.model_dump()).encode() + b"\n")

    def load(self, round_number: int, parents: Collection[str]) -> Proposal | None:
        """The candidate of a round, if there is one that can be used; another one is logged.

        It is intact, 1 to `MAX_MORPHS` morphs away from one of `parents` (hashes), within the
        limits, and in the replica's lane.
        """
        path = self._paths.candidate(self._replica, round_number)
        try:
            return self._proposal(Candidate.model_validate_json(path.read_bytes()), parents)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AiperfError) as error:
            log.error("candidate %s is not used: %s", path, error)
            return None

    def _proposal(self, candidate: Candidate, parents: Collection[str]) -> Proposal:
        """The proposal that a file describes.

        Raises AiperfError, ValueError, or TypeError for a morph with a value of another type.
        """
        if candidate.parent not in parents:
            raise ValueError(f"its parent {candidate.parent!r} is not a completed architecture of this run")
        if not 1 <= len(candidate.morphs) <= MAX_MORPHS:
            raise ValueError(f"it has {len(candidate.morphs)} morphs, not 1 to {MAX_MORPHS}")
        morphs = tuple(morph_from_data(data) for data in candidate.morphs)
        architecture = apply_all(self._knowledge.load(candidate.parent), morphs)
        if architecture.hash != candidate.hash:
            raise ValueError(f"its morphs make {architecture.hash}, not {candidate.hash}")
        if (refusal := self._limits.refusal(architecture)) is not None:
            raise ValueError(f"it has {refusal}")
        if not self._lane.holds(lane_key(architecture)):
            raise ValueError("it is in the lane of another replica")
        return Proposal(architecture, candidate.parent, morphs)
