"""The training of one group among others that exchange with the same parameter servers."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from aiperf.clock import Clock
from aiperf.facts import ExchangeFacts, ProgressFacts
from aiperf.wire.messages import Begin
from replica.trainer.channel import Reporter
from replica.trainer.framework import CompiledSteps
from replica.trainer.hybrid.exchange import Exchange, Terms
from replica.trainer.hybrid.exchange_log import Beginning, Exchanged
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.model.state import assign, copied
from replica.trainer.model.weights import BestWeights
from replica.trainer.servers.client import Servers, ServerState
from replica.trainer.servers.protocol import Sharding, Tag
from replica.trainer.servers.shard import Recipe
from replica.trainer.training import Training, TrainingInputs, steps_for
from workloads.contract import Sums


@dataclass(frozen=True, slots=True)
class Trained:
    """The trained variables of a network, which are exchanged, in the order of their gradients."""

    network: Any
    """The Keras model, which also has the moving statistics."""
    variables: Sequence[Any]
    weight_decay: float = 0.0

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the variables."""
        return tuple(tuple(variable.shape) for variable in self.variables)


class GroupTraining(Training):
    """The training of any group: it begins with rank 0's weights, and trains its own share."""

    def __init__(
        self, steps: CompiledSteps, inputs: TrainingInputs, group: GroupCollective, trained: Trained, clock: Clock
    ) -> None:
        super().__init__(steps, inputs, clock)
        hybrid = inputs.request.hybrid
        assert hybrid is not None
        self._group = group
        self._trained = trained
        self._recipe = Recipe(
            optimiser=hybrid.optimiser,
            momentum=hybrid.momentum,
            weight_decay=trained.weight_decay,
            staleness_aware=hybrid.staleness_aware,
        )
        numbers = group.places.server_numbers
        self._servers = Servers(group.post, numbers, trained.shapes) if group.rank == 0 else None
        """The servers as the root sees them; None on other ranks."""
        self._sharding = Sharding(trained.shapes, group.places.servers)
        terms = Terms(group.group, self._sharding, inputs.rate, self._images.train_images, hybrid.warm_up)
        self._exchange = Exchange(group.inner, self._servers, terms, clock)
        self._latest: Any = None
        """Results of the last step."""
        self._counted = 0
        """Images of all groups that facts of epochs have reported."""

    def _start(self, restored: Sequence[ServerState] = (), epochs: int = 0) -> int:
        """Begin on every rank with rank 0's weights; give the number of epochs that are not its.

        Every group has its first values before group 0 begins: staleness counts all that follows.
        """
        if self._group.is_leader:
            assert self._servers is not None
            values = [copied(variable) for variable in self._trained.variables]
            self._servers.set_up(self._recipe, values, restored)
        if self._group.group == 0:
            self._pull()  # before another group can update
        begin = msgspec.json.encode(Beginning(resumed=epochs, done=epochs))
        begun = msgspec.json.decode(self._group.broadcast(begin), type=Beginning)
        self._exchange.epochs = begun.resumed
        if self._servers is not None:
            self._servers.asked = max(self._servers.asked, begun.asked)
        received, start = self._group.broadcast(self._statistics() if self._group.is_leader else b""), 0
        for weight in self._trained.network.non_trainable_weights:
            own = copied(weight)
            weight.assign(np.frombuffer(received, own.dtype, own.size, start).reshape(own.shape))
            start += own.nbytes
        # From here on a step's gradients go to the servers; in the warm-up `HybridUpdate` applied
        # none.
        self._group.exchange = self._exchange
        if self._group.group > 0:
            self._pull()
        # Group 0 waits here until every group has the first values: none is needed any more then.
        self._group.gather("")
        if self._group.is_leader:
            self._group.post.send(b"", self._group.places.starter, Tag.BEGUN)
        return begun.done

    def _statistics(self) -> bytes:
        """The moving statistics of rank 0: they are no parameters, and no server has them."""
        return b"".join(copied(weight).tobytes() for weight in self._trained.network.non_trainable_weights)

    def _pull(self, averaged: bool = False) -> None:
        """Take the servers' values, or their moving average, on every rank of the group."""
        answer = self._exchange.pull(averaged)
        assign(self._trained.variables, answer.values)

    def _train(self, epoch: int, report: Reporter, limit: int | None = None) -> Sums:
        """Train the group's share of an epoch, until its end or that of the training."""
        report.phase("train")
        own = len(self._share.of_group(self._images.train_images))
        steps = steps_for(own, self._request, self._group.size)
        # Group 0 may reach the target while this group trains: then no further batch is read.
        batches = itertools.takewhile(lambda _: not self._exchange.stopped, self._epochs.train(epoch))
        totals = np.zeros(2)
        self._exchange.begin_epoch(epoch)
        for results, due in self._walk(self._step, batches, min(limit or steps, steps), epoch):
            totals += results[:, :2].astype(np.float64).sum(axis=0)
            if due:
                report.progress(self._progress(epoch))
        return Sums.of(totals)

    def _step(self, images: Any, labels: Any) -> Any:
        """Do a training step; no-op once the training has reached its target.

        `_walk` always takes all steps of an epoch. After the end the batches are empty, and results
        of zero count nothing.
        """
        if not self._exchange.stopped:
            self._latest = self._steps.train(images, labels)
            return self._latest
        return self._latest * 0

    def _progress(self, epoch: int) -> ProgressFacts:
        images = self._exchange.images - self._counted
        return ProgressFacts(epoch=epoch, images_trained=images, images_evaluated=0)

    def _facts(self) -> ExchangeFacts | None:
        """The facts of the group's exchange in this epoch; None on ranks other than its root."""
        return self._exchange.facts() if self._servers is not None else None


class FollowingTraining(GroupTraining):
    """The training of a group other than 0, whose root reports to rank 0."""

    def run(self, begin: Begin, report: Reporter, kept: BestWeights | None = None) -> bool:
        """Train to the last epoch, or until group 0 ends it. Raises TrialFailedError on a NaN."""
        done = self._start()
        if begin.only_steps is not None:
            self._train(1, report, begin.only_steps)
            self._send(Exchanged(last=True))
            return False
        for epoch in range(done + 1, self._request.epochs + 1):
            trained = self._train(epoch, report) if not self._exchange.stopped else Sums(0, 0.0)
            last = self._exchange.stopped or epoch == self._request.epochs
            if not last:
                self._epochs.open(epoch + 1)
            self._send(Exchanged(facts=self._facts() if trained.examples else None, last=last))
            if last:
                break
        return False

    def _send(self, message: Exchanged) -> None:
        """Report to rank 0, if this is a root."""
        if self._servers is not None:
            self._group.post.send(msgspec.json.encode(message), 0, Tag.EXCHANGED)
