"""The training of group 0, which validates, reports and ends the training of all groups."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from aiperf.clock import Clock
from aiperf.facts import EpochFacts
from aiperf.wire.messages import Begin
from replica.trainer.channel import Reporter
from replica.trainer.checkpoints import Checkpoints
from replica.trainer.framework import CompiledSteps
from replica.trainer.hybrid.exchange_log import Board
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.hybrid.state import HybridState
from replica.trainer.hybrid.training import GroupTraining, Trained
from replica.trainer.model.best_weights import BestWeights
from replica.trainer.servers.protocol import Sharding, Tag
from replica.trainer.training import TrainingInputs, seconds_of


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
        sharding = Sharding(self._trained.shapes, self._group.places.servers)
        return HybridState(self._steps, self._servers, sharding, self._recipe, self._board.collect)

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
            self._group.post.send_text(msgspec.json.encode(beginning), group, Tag.BEGIN)
            self._group.post.send_text(self._statistics(), group, Tag.BEGIN)

    def _settle(self, epoch: int, early: bool, report: Reporter) -> None:
        """Take the servers' values in place of the average; at an early end, the final ones."""
        if early and epoch < self._request.epochs:
            if self._servers is not None:
                self._servers.stop()
            self._await_others(epoch, report)
        self._pull()

    def _await_others(self, epoch: int, report: Reporter) -> None:
        """Wait for the end of the other groups, and report progress meanwhile.

        Only the root does: other ranks of this group wait for it in their next collective call.
        """
        if self._servers is None or self._board is None:
            return
        while not self._board.all_ended:
            self._board.collect()
            if self._clock.monotonic_s() - self._reported_s >= self._request.progress_interval_s:
                # Past `Exchange.pull`, which broadcasts: the other ranks of the group are not in
                # that call.
                self._exchange.images = self._servers.pull().images
                report.progress(self._progress(epoch))
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
