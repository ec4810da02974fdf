"""Candidates on disk: architectures that were proposed ahead, for a later round of a replica."""

from __future__ import annotations

import json
import logging

from pydantic import BaseModel, ConfigDict

from aiperf.errors import AiperfError
from aiperf.files import write_atomically
from aiperf.run_directory.paths import RunPaths
from replica.search.knowledge import Knowledge
from replica.search.strategies.contract import Proposal
from search_space.morph_json import MorphData, apply_all, morph_data, morph_from_data

log = logging.getLogger(__name__)


class Candidate(BaseModel):
    """A candidate's file: the morphs from a stored architecture to the proposed one."""

    model_config = ConfigDict(frozen=True)

    hash: str
    parent: str
    morphs: tuple[MorphData, ...]


class Candidates:
    """The candidates of one replica, one file per round."""

    def __init__(self, replica: int, paths: RunPaths, knowledge: Knowledge) -> None:
        self._replica = replica
        self._paths = paths
        self._knowledge = knowledge

    def save(self, round_number: int, proposal: Proposal) -> None:
        """Write the candidate of a round, in place of an earlier one. Raises OSError."""
        if proposal.parent is None:
            raise ValueError("the initial architecture has no parent and cannot be a candidate")
        morphs = tuple(morph_data(morph) for morph in proposal.morphs)
        candidate = Candidate(hash=proposal.architecture.hash, parent=proposal.parent, morphs=morphs)
        path = self._paths.candidate(self._replica, round_number)
        write_atomically(path, json.dumps(candidate.model_dump()).encode() + b"\n")

    def load(self, round_number: int) -> Proposal | None:
        """The candidate of a round, if there is an intact one; a damaged one is logged."""
        path = self._paths.candidate(self._replica, round_number)
        try:
            candidate = Candidate.model_validate_json(path.read_bytes())
            morphs = tuple(morph_from_data(data) for data in candidate.morphs)
            architecture = apply_all(self._knowledge.load(candidate.parent), morphs)
            if architecture.hash != candidate.hash:
                raise ValueError(f"its morphs make {architecture.hash}, not {candidate.hash}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AiperfError) as error:
            log.error("candidate %s is damaged and is not used: %s", path, error)
            return None
        return Proposal(architecture, candidate.parent, morphs)
