"""One suite for every update: gradient descent on the mean over all ranks' images.

tests/contract/trainer/test_ranks.py compares several ranks with one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from msgspec.structs import replace

from aiperf.clock import SystemClock
from aiperf.facts import HybridTraining
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.hybrid.exchange import Exchange, Terms
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.hybrid.update import HybridUpdate
from replica.trainer.servers.protocol import Sharding
from replica.trainer.servers.shard import Recipe
from replica.trainer.updates import LocalUpdate, SynchronousUpdate, Update, update_for
from tests.support.trainings.mailboxes import places_for, serving
from tests.support.trainings.requests import request_for

UPDATES: dict[str, type[Update]] = {"local": LocalUpdate, "synchronous": SynchronousUpdate, "hybrid": HybridUpdate}


class WithAnother(AloneCollective):
    """Sums as if a second rank had taken part: with one image, a gradient of 5 and a loss of 2."""

    size = 2

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        *gradients, sums = tensors
        return [*(gradient + 5.0 for gradient in gradients), sums + tf.constant([2.0, 1.0])]


def updated(name: str, collective: AloneCollective) -> tuple[float, list[float], list[float]]:
    """The variable (from 1), sums and gradients after a mean gradient of 2 over three images."""
    variable = keras.Variable(1.0)
    optimiser = keras.optimizers.SGD(0.5)
    optimiser.build([variable])
    if name == "hybrid":
        return updated_by_a_server(optimiser, variable, collective)
    update = UPDATES[name](optimiser, collective)
    assert update.traceable

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        return update.apply([tf.constant(2.0)], [variable], tf.constant([6.0, 3.0]))

    sums, applied = step()
    return float(variable.numpy()), sums.numpy().tolist(), [float(each) for each in applied]


def updated_by_a_server(
    optimiser: Any, variable: Any, inner: AloneCollective
) -> tuple[float, list[float], list[float]]:
    """The same, with a parameter server in a thread."""
    group = GroupCollective(0, places_for(1, 1), inner, None)
    update = HybridUpdate(optimiser, group)
    assert not update.traceable
    given = ([tf.constant(2.0)], [variable], tf.constant([6.0, 3.0]))
    update.apply(*given)
    assert variable.numpy() == 1.0, "a step that warms up changes nothing"
    with exchanging(group):
        sums, applied = update.apply(*given)
    return float(variable.numpy()), sums.numpy().tolist(), [float(each) for each in applied]


@contextmanager
def exchanging(group: GroupCollective) -> Iterator[Exchange]:
    """The exchange of a variable, from 1, at a rate of 0.5 with a server in a thread."""
    with serving(1, 1, [()]) as (servers,):
        servers.set_up(Recipe(optimiser="sgd", momentum=0.0), [np.ones((), np.float32)])
        group.exchange = Exchange(
            group.inner, servers, Terms(0, Sharding(((),), 1), lambda epochs: 0.5, 4), SystemClock()
        )
        group.exchange.pull()
        yield group.exchange


@pytest.mark.parametrize("name", list(UPDATES))
def test_one_rank_takes_its_own_gradient(name: str) -> None:
    value, sums, applied = updated(name, AloneCollective())
    assert value == pytest.approx(1 - 0.5 * 2)
    assert sums == [6.0, 3.0]
    assert applied == pytest.approx([2.0])


@pytest.mark.parametrize("name", ["synchronous", "hybrid"])
def test_ranks_that_train_together_weigh_as_much_as_their_images(name: str) -> None:
    value, sums, applied = updated(name, WithAnother())
    # Three images with a mean gradient of 2 and one with 5: 11 / 4.
    assert value == pytest.approx(1 - 0.5 * 11 / 4)
    assert sums == [8.0, 4.0]
    assert applied == pytest.approx([11 / 4]), "that of all ranks, not this one's"


@pytest.mark.parametrize("name", list(UPDATES))
def test_an_update_that_xla_may_compile_communicates_with_no_rank(name: str) -> None:
    value, *_ = updated(name, WithAnother())
    alone, *_ = updated(name, AloneCollective())
    assert UPDATES[name].compilable == bool(np.isclose(value, alone))


def test_servers_get_gradients_of_float16_without_the_scale_of_the_loss() -> None:
    variable, group = keras.Variable(1.0), GroupCollective(0, places_for(1, 1), AloneCollective(), None)
    sgd = keras.optimizers.SGD(0.0, global_clipnorm=3.0)
    optimiser = keras.optimizers.LossScaleOptimizer(sgd, initial_scale=8.0, dynamic_growth_steps=2)
    optimiser.build([variable])
    update, seen = HybridUpdate(optimiser, group), []
    with exchanging(group) as exchange:
        for gradient, scale in ((2.0, 8.0), (np.inf, 8.0), (6.0, 4.0), (1.0, 4.0), (1.0, 8.0)):
            assert float(optimiser.scale_loss(1.0)) == scale
            update.apply([tf.constant(gradient * scale)], [variable], tf.constant([6.0, 3.0]))
            seen.append(float(variable.numpy()))
    # A gradient of 2; none; 6, of which the norm is 3; twice 1.
    assert seen == pytest.approx([0.0, 0.0, -1.5, -2.0, -2.5])
    assert (exchange.images, exchange.version) == (15, 5), "the images of the step that overflowed count"


def test_several_ranks_train_synchronously() -> None:
    optimiser, request = keras.optimizers.SGD(0.5), request_for("digits")
    assert type(update_for(optimiser, AloneCollective(), request)) is LocalUpdate
    assert type(update_for(optimiser, WithAnother(), request)) is SynchronousUpdate
    hybrid = replace(request, hybrid=HybridTraining(groups=1, servers=1, optimiser="sgd", momentum=0.0))
    group = GroupCollective(0, places_for(1, 1), AloneCollective(), None)
    assert type(update_for(optimiser, group, hybrid)) is HybridUpdate
