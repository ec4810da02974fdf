"""The training of group 0, which validates, reports and ends the training of all groups."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.wire.messages import Begin
from replica.trainer.channel import Reporter
from replica.trainer.checkpoints import Checkpoints
from replica.trainer.framework import CompiledSteps
from replica.trainer.hybrid.exchange_log import Board
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.hybrid.training import FollowingTraining, GroupTraining, Trained
from replica.trainer.model.weights import BestWeights
from replica.trainer.servers.client import Servers, ServerState
from replica.trainer.servers.protocol import Sharding, Tag
from replica.trainer.servers.shard import Recipe
from replica.trainer.training import Training, TrainingInputs, seconds_of


@dataclass
class HybridState:
    """The state of a hybrid training on rank 0: the model's variables, then each server's version
    and vectors (`HasState`)."""

    steps: CompiledSteps
    servers: Servers
    sharding: Sharding
    recipe: Recipe
    meanwhile: Callable[[], None]
    """Work of rank 0 while it waits for the servers to have the same updates."""
    restored: Sequence[ServerState] = ()
    """The state that the servers start from; empty if no checkpoint was found."""

    def state(self) -> list[NDArray[Any]]:
        """Copies of the model's variables, and the servers' state as of now."""
        found = self.steps.state()
        for server in self.servers.states(self.meanwhile):
            found += [np.array(server.version, np.int64), *(server.vectors[name] for name in self.recipe.names)]
        return found

    def restore(self, state: Sequence[NDArray[Any]]) -> None:
        """Set the model's variables, and keep the rest for the servers.

        Raises ValueError if the state is of another model, or of other servers.
        """
        names, sizes = self.recipe.names, self.sharding.sizes()
        # The servers' part has the same number of arrays for each, so that it is found from the
        # end: how many variables the model has need not be known.
        width = 1 + len(names)
        own, others = state[: len(state) - width * len(sizes)], state[len(state) - width * len(sizes) :]
        shapes = [shape for size in sizes for shape in ((), *[(size,)] * (width - 1))]
        if [vector.shape for vector in others] != shapes:
            raise ValueError("it is of other parameter servers")
        self.steps.restore(own)
        self.restored = [
            ServerState(dict(zip(names, others[start + 1 : start + width], strict=True)), int(others[start]))
            for start in range(0, len(others), width)
        ]


class LeadingTraining(GroupTraining):
    """The training of group 0.

    It validates with the moving average of the servers' weights, and its own moving statistics.

    Epoch facts carry the images that all groups have trained since the facts before.
    """

    def __init__(
        self, steps: CompiledSteps, inputs: TrainingInputs, group: GroupCollective, trained: Trained, clock: Clock
    ) -> None:
        super().__init__(steps, inputs, group, trained, clock)
        self._board = Board(group.post, self._servers, group.groups) if self._servers is not None else None
        """The reports of all groups; None on ranks other than the root."""

    def run(self, begin: Begin, report: Reporter, kept: BestWeights | None = None) -> bool:
        """Train the epochs of the round, or the steps asked for; True if patience ended it.

        Raises TrialFailedError on a NaN loss.
        """
        if begin.only_steps is not None:
            self._start()
            self._train(1, report, begin.only_steps)
            self._await_others(1, report)
            return False
        state = self._state()
        checkpoints = Checkpoints(begin, state or self._steps, self._group.inner, self._clock)
        try:
            qualities = checkpoints.resume(kept)
            if self._board is not None:
                self._board.first_epoch, self._board.said = len(qualities) + 1, tuple(self._group.said)
            self._start(state.restored if state is not None else (), len(qualities))
            return self._train_epochs(qualities, checkpoints, report, kept)
        finally:
            checkpoints.close()

    def _state(self) -> HybridState | None:
        """The state that checkpoints hold; None on ranks other than the root."""
        if self._servers is None or self._board is None:
            return None
        return HybridState(self._steps, self._servers, self._sharding, self._recipe, self._board.collect)

    def _epoch(self, epoch: int, report: Reporter, kept: BestWeights | None) -> tuple[EpochFacts, list[Any]]:
        """Train, and evaluate the averaged weights.

        After the last epoch they are those of all groups' updates: the other groups end first.
        """
        self._admit(epoch)
        # Before the epoch trains: the record has the rate that it began with.
        rate = self._exchange.rate()
        trained = self._train(epoch, report)
        if self._board is not None:
            self._board.add(self._exchange.facts())
        if epoch < self._request.epochs:
            self._epochs.open(epoch + 1)
        else:
            self._await_others(epoch, report)
        self._steps.average_statistics()
        self._pull(averaged=True)
        weights = self._steps.weights() if kept is not None else []
        so_far = self._progress(epoch)
        evaluated = self._validate(so_far, report)
        facts = self._workload.facts(epoch, rate, trained, evaluated)
        facts = replace(facts, **seconds_of(self._epochs.waited_s, self._exchanged_s))
        return self._judge_finally(facts, so_far, report), weights

    def _admit(self, epoch: int) -> None:
        """Let the groups that have come back begin to train, not before this epoch."""
        if self._board is None:
            return
        self._board.collect()
        for group, beginning in self._board.admit(epoch - 1, self._request.epochs):
            # One tag for both: they are taken in this order (`GroupTraining._start`).
            self._group.post.send(msgspec.json.encode(beginning), group, Tag.BEGIN)
            self._group.post.send(self._statistics(), group, Tag.BEGIN)

    def _settle(self, epoch: int, early: bool, report: Reporter) -> None:
        """Take the servers' values in place of the average; at an early end, the final ones."""
        if early and epoch < self._request.epochs:
            if self._servers is not None:
                self._servers.stop()
            self._await_others(epoch, report)
        self._pull()

    def _await_others(self, epoch: int, report: Reporter) -> None:
        """Wait for the end of the other groups, and report their progress meanwhile, if any.

        Only the root does: other ranks of this group wait for it in their next collective call.
        """
        if self._servers is None or self._board is None:
            return
        while not self._board.all_ended:
            self._board.collect()
            if self._clock.monotonic_s() - self._reported_s >= self._request.progress_interval_s:
                # Past `Exchange.pull`, which broadcasts: the other ranks of the group are not in
                # that call.
                images = self._servers.pull().images
                # Without an update nothing is reported: the agent ends a training that has stopped.
                if images > self._exchange.images:
                    self._exchange.images = images
                    report.progress(self._progress(epoch))
                else:
                    logging.warning("waiting for %s, which send no updates", self._board.awaited)
                self._reported_s = self._clock.monotonic_s()
            self._group.post.wait()

    def _report(self, facts: EpochFacts, report: Reporter) -> None:
        """Report an epoch, and the work of groups and servers since the one before."""
        if self._servers is None or self._board is None:
            return
        self._board.collect()
        report.exchange(self._board.take(), self._servers.report(facts.epoch))
        images, self._counted = self._exchange.images - self._counted, self._exchange.images
        report.epoch(replace(facts, images_trained=images))


def training_of(steps: CompiledSteps, inputs: TrainingInputs, trained: Trained, clock: Clock) -> Training:
    """The training of a network's variables.

    Raises TrialFailedError ("input") if either the ranks or the request are hybrid, not both.
    """
    group, hybrid = inputs.collective, inputs.request.hybrid
    if isinstance(group, GroupCollective) != (hybrid is not None):
        raise TrialFailedError("input", "ranks and request disagree about groups and parameter servers")
    if not isinstance(group, GroupCollective):
        return Training(steps, inputs, clock)
    inputs = changed(inputs, group=group.group, groups=group.groups)
    kind = LeadingTraining if group.group == 0 else FollowingTraining
    return kind(steps, inputs, group, trained, clock)
