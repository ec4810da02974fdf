"""What a replica does next, prepared ahead: the history list as the proposer sees it, and candidates on disk."""

from __future__ import annotations

import json
import logging
import random
import threading
from dataclasses import dataclass

from aiperf.architecture import Architecture
from aiperf.config import RunConfig
from aiperf.errors import AiperfError
from aiperf.files import write_atomically
from aiperf.history import HistoryReader
from aiperf.ledger import Ledger, TrialLedger
from aiperf.models import ArchitectureStore
from aiperf.paths import RunPaths
from aiperf.seeds import fold_seed
from replica.proposer import History, Lane, Proposal, Proposer
from replica.surrogate import Observation
from search_space.limits import Limits, growth_limits
from search_space.morph_json import apply_all, morph_data, morph_from_data
from search_space.resnet import resnet

log = logging.getLogger(__name__)

GIB = 2**30
ACTIVATION_BYTES = {"float32": 4, "mixed_bfloat16": 2}


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Trained weights that a child may start from."""

    trial: int
    architecture: str


def initial_architecture(config: RunConfig) -> Architecture:
    """The architecture that the search starts from."""
    depth = int(config.search.initial_architecture.removeprefix("resnet"))
    return resnet(depth, config.dataset.image_size, config.dataset.classes)


def limits_of(config: RunConfig, initial: Architecture, memory_bytes: int | None) -> Limits:
    """How far the search may grow; `memory_bytes` is what an accelerator has where the configuration is silent."""
    configured = config.replica.accelerator_memory_gib
    return growth_limits(
        initial,
        config.search.max_growth,
        memory_bytes if configured is None else round(configured * GIB),
        config.batch_size,
        ACTIVATION_BYTES[config.training.precision],
    )


class Planner:
    """Plans the rounds of one replica. Its methods may be called from several threads, one after the other."""

    def __init__(self, replica: int, config: RunConfig, paths: RunPaths, memory_bytes: int | None) -> None:
        self._replica = replica
        self._config = config
        self._paths = paths
        self._reader = HistoryReader(paths)
        self._ledger = Ledger()
        self._store = ArchitectureStore(paths)
        self._initial = initial_architecture(config)
        self._proposer = Proposer(self._initial, limits_of(config, self._initial, memory_bytes))
        self._prepared: tuple[int, frozenset[str]] | None = None
        self._lock = threading.Lock()

    def plan(self, trial: int, round_number: int) -> Proposal:
        """The architecture of a round: the prepared candidate if there is a good one, else a new proposal.

        The first trial of a run is the initial architecture. Raises TrialFailedError ("search").
        """
        with self._lock:
            self._read()
            proposal = Proposal(self._initial, None) if trial == 1 else self._next(round_number)
            self._store.save(proposal.architecture)
            return proposal

    def _next(self, round_number: int) -> Proposal:
        history = self._history()
        return self._candidate(round_number, history) or self._propose(round_number, history)

    def prepare(self, round_number: int) -> None:
        """Store a candidate for a later round; nothing happens while the history has not moved on."""
        with self._lock:
            self._read()
            history = self._history()
            state = (round_number, frozenset(history.hashes))
            if state == self._prepared:
                return
            proposal = self._propose(round_number, history)
            document = {
                "hash": proposal.architecture.hash,
                "parent": proposal.parent,
                "morphs": [morph_data(morph) for morph in proposal.morphs],
            }
            path = self._paths.candidate(self._replica, round_number)
            write_atomically(path, json.dumps(document).encode() + b"\n")
            self._prepared = state

    def weights_for(self, proposal: Proposal) -> KeptWeights | None:
        """Kept weights of the proposal's parent, if children inherit and there are any."""
        if self._config.search.initial_weights != "inherit" or proposal.parent is None:
            return None
        with self._lock:
            for entry in self._ranked():
                assert entry.started is not None
                name = entry.started.architecture
                if name == proposal.parent and self._paths.weights(name, entry.trial).exists():
                    return KeptWeights(entry.trial, name)
        return None

    def prune_weights(self) -> None:
        """Delete this replica's weights of trials that are not among the best `search.kept_weights` of the run."""
        with self._lock:
            self._read()
            for entry in self._ranked()[self._config.search.kept_weights :]:
                assert entry.started is not None
                if entry.started.replica == self._replica:
                    self._paths.weights(entry.started.architecture, entry.trial).unlink(missing_ok=True)

    def _read(self) -> None:
        batch = self._reader.read_new()
        self._ledger.add(batch.records)
        for damage in batch.damages:
            log.error("damaged record in the history list: %s", damage)

    def _ranked(self) -> list[TrialLedger]:
        done = [e for e in self._ledger.completed_trials() if e.started is not None and e.accuracy is not None]
        return sorted(done, key=lambda entry: (-(entry.accuracy or 0.0), entry.trial))

    def _history(self) -> History:
        completed: list[Observation] = []
        pending: list[Architecture] = []
        failed: list[str] = []
        for number in sorted(self._ledger.trials):
            entry = self._ledger.trials[number]
            if entry.started is None:
                continue
            name = entry.started.architecture
            if entry.ended is not None and entry.accuracy is not None:
                completed.append(Observation(self._store.load(name), entry.accuracy))
            elif entry.failed is not None or self._ledger.died_ms(entry) is not None:
                failed.append(name)
            else:
                pending.append(self._store.load(name))
        return History(tuple(completed), tuple(pending), tuple(failed))

    def _propose(self, round_number: int, history: History) -> Proposal:
        # Folded by round, not by trial: the id of a later trial is not known while its candidate is prepared.
        rng = random.Random(fold_seed(self._config.run.seed, "search", round_number, self._replica))
        lane = Lane.of(self._replica, self._config.run.replicas)
        if self._config.search.strategy == "random":
            return self._proposer.propose_randomly(history, rng, lane)
        return self._proposer.propose(history, rng, lane)

    def _candidate(self, round_number: int, history: History) -> Proposal | None:
        path = self._paths.candidate(self._replica, round_number)
        try:
            document = json.loads(path.read_bytes())
            morphs = tuple(morph_from_data(data) for data in document["morphs"])
            architecture = apply_all(self._store.load(document["parent"]), morphs)
            if architecture.hash != document["hash"]:
                raise ValueError(f"its morphs make {architecture.hash}, not {document['hash']}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AiperfError) as error:
            log.error("candidate %s is damaged and is not used: %s", path, error)
            return None
        if architecture.hash in history.hashes:
            return None
        return Proposal(architecture, document["parent"], morphs)
