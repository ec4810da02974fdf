"""Learning rates: functions of what was trained, whatever the ranks and their steps."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from aiperf.clock import SystemClock
from aiperf.facts import EpochFacts
from aiperf.wire.messages import Begin, TrainRequest
from replica.trainer.channel import RankReporter
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.hybrid.exchange import Exchange, Terms
from replica.trainer.schedules import Rate, ScheduledRate, linear_rate
from replica.trainer.servers.protocol import Sharding
from replica.trainer.training import Training, TrainingInputs
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION
from workloads.science import SCIENCE

IMAGES, EPOCHS = 97, 8
FRESH = Begin(trial=1)
SCHEDULES = {
    f"{name} {size}": SCIENCE.load(name).size(size).schedule for name in SCIENCE for size in ("official", "rehearsal")
}
RATES: dict[str, Callable[[TrainRequest, int], Rate]] = {
    "automl": lambda request, ranks: linear_rate(request),
    **{
        name: lambda request, ranks, schedule=schedule: ScheduledRate(schedule, request, ranks)  # type: ignore[misc]
        for name, schedule in SCHEDULES.items()
    },
}


class Steps:
    """Compiled steps that train nothing and keep the rates that they are given."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.rates: list[float] = []
        self.epochs = 0

    def set_learning_rate(self, rate: float) -> None:
        self.rates.append(rate)

    def train(self, images: Any, labels: Any) -> Any:
        return np.array([1.0, len(images), 1.0], np.float32)

    def evaluate(self, images: Any, labels: Any) -> Any:
        return np.array([1.0, 1.0, 3.0], np.float32)

    def read(self, results: list[Any]) -> Any:
        return np.stack(results)

    def state(self) -> list[Any]:
        return []

    def restore(self, state: list[Any]) -> None: ...

    def share(self) -> None: ...

    def take_correct(self) -> None: ...

    def average_statistics(self) -> None:
        self.epochs += 1

    def prepare(self, blank: Any, sizes: Any) -> None: ...

    def compiled(self) -> str:
        return "regions, graph" if self.epochs < 2 else "regions, no graph (no memory)"


class EpochClock(SystemClock):
    """A clock that goes on by a second after each epoch, however long that took."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def monotonic_s(self) -> float:
        return self._steps.epochs


class Ranks(AloneCollective):
    """The first of several ranks."""

    def __init__(self, size: int) -> None:
        self.size = size


class Source:
    """Blank images."""

    input_type = np.float32

    dataset = SimpleNamespace(
        train_images=IMAGES, validation_images=3, image_size=1, classes=2, input_shape=(1, 1, 3), target_shape=(2,)
    )

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: Any) -> Iterator[Any]:
        own = len(share.of(IMAGES))
        return (CLASSIFICATION.blank(min(batch_size, own - start), self.dataset) for start in range(0, own, batch_size))  # type: ignore[arg-type]

    def validation_batches(self, batch_size: int, share: Any) -> Iterator[Any]:
        return iter(())


class Seen(RankReporter):
    """The epochs that are reported."""

    def __init__(self) -> None:
        self.epochs: list[EpochFacts] = []

    def epoch(self, facts: EpochFacts) -> None:
        self.epochs.append(facts)


def trained(
    kind: str, ranks: int, epochs: int = EPOCHS, begin: Begin = FRESH, first_ranks: int = 1
) -> tuple[list[float], list[EpochFacts]]:
    """The rate of each step, and the facts of each epoch."""
    request = request_for("digits", epochs=epochs, max_epochs=EPOCHS, batch_size=8, patience=99)
    steps, seen, rate = Steps(ranks), Seen(), RATES[kind](request, first_ranks)
    inputs: Any = TrainingInputs(CLASSIFICATION, Source(), Ranks(ranks), request, rate)  # type: ignore[arg-type]
    training = Training(steps, inputs, EpochClock(steps))  # type: ignore[arg-type]
    training.warm_up()
    training.run(begin, seen)
    return steps.rates, seen.epochs


@pytest.mark.parametrize("kind", list(RATES))
def test_rates_at_the_same_place_are_the_same_with_1_to_4_ranks(kind: str) -> None:
    places: dict[int, np.float32] = {}
    recorded = set()
    for ranks in range(1, 5):
        rates, facts = trained(kind, ranks)
        by_epoch = [each.learning_rate for each in facts]
        recorded.add(tuple(by_epoch))
        assert len(rates) % EPOCHS == 0
        per_epoch = len(rates) // EPOCHS
        assert [np.float32(rate) for rate in rates[::per_epoch]] == by_epoch, "what is recorded is applied"
        for number, rate in enumerate(rates):
            images = number // per_epoch * IMAGES + number % per_epoch * 8 * ranks
            assert places.setdefault(images, np.float32(rate)) == np.float32(rate)
    assert len(recorded) == 1


@pytest.mark.parametrize("first", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["automl", "hepcnn official", "resnet-hep official"])
def test_a_training_that_is_interrupted_after_any_epoch_keeps_its_rates_on_1_to_4_ranks(
    kind: str, first: int, tmp_path: Path
) -> None:
    undisturbed = [facts.learning_rate for facts in trained(kind, first, first_ranks=first)[1]]
    for last in range(1, EPOCHS):
        for ranks in range(1, 5):
            path = str(tmp_path / f"{last}-{ranks}")
            # The state after `last` is the only one that is kept, and the epoch after it is lost.
            begin = Begin(trial=1, checkpoint_path=path, checkpoint_interval_s=last)
            before = trained(kind, first, last + 1, begin, first)[1][:last]
            again = replace(begin, restore=last, states=(str(before[-1].state),))
            rates, after = trained(kind, ranks, EPOCHS, again, first)
            assert [facts.epoch for facts in (*before, *after)] == list(range(1, EPOCHS + 1))
            assert [facts.learning_rate for facts in (*before, *after)] == undisturbed
            assert np.float32(rates[0]) == undisturbed[last], "what is recorded is applied"


def test_an_epoch_says_what_is_compiled_if_that_is_no_longer_what_was_said() -> None:
    facts = trained("automl", 1)[1]
    assert [each.compiled for each in facts] == [None, "regions, no graph (no memory)", *[None] * (EPOCHS - 2)]


@pytest.mark.parametrize("kind", list(RATES))
def test_a_rate_is_between_0_and_the_largest_one(kind: str) -> None:
    rate = RATES[kind](request_for("digits", max_epochs=10, learning_rate=0.1), 1)
    rates = [rate(step / 100) for step in range(1001)]
    assert min(rates) >= 0
    assert max(rates) <= 0.1 + 1e-12
    assert max(rates) > 0.05


def test_automls_rate_falls_evenly_to_0() -> None:
    rates = [linear_rate(request_for("digits", max_epochs=10, learning_rate=0.1))(epoch) for epoch in range(11)]
    assert [a - b for a, b in pairwise(rates)] == pytest.approx([0.01] * 10)
    assert rates[-1] == 0


def test_the_largest_rate_grows_with_the_ranks() -> None:
    request = request_for("digits", max_epochs=10, learning_rate=0.1)
    sgd, adam = SCHEDULES["resnet-hep official"], SCHEDULES["hepcnn official"]
    assert (sgd.optimiser, adam.optimiser) == ("sgd", "adam")
    assert ScheduledRate(sgd, request, 4)(3) == pytest.approx(4 * ScheduledRate(sgd, request, 1)(3))
    assert ScheduledRate(adam, request, 4)(3) == pytest.approx(2 * ScheduledRate(adam, request, 1)(3))


@pytest.mark.parametrize("size", [1, 2])
def test_groups_have_the_rate_of_what_all_of_them_have_trained(size: int) -> None:
    request = request_for("digits", max_epochs=10, learning_rate=0.1)
    group: Any = AloneCollective()
    exchange = Exchange(
        group, None, Terms(0, Sharding(((),), 1), linear_rate(request), IMAGES, warm_up=4), SystemClock()
    )
    exchange.epochs, exchange.images, exchange.version = 2, IMAGES * 3, 300 // size
    assert exchange.rate() == pytest.approx(0.05)
    exchange.epochs, exchange.images, exchange.version = 0, 0, 0
    assert exchange.rate() == pytest.approx(0.1 / 4)
