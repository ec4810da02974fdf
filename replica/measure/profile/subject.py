"""The training of a profile: a classification on its data set, or a network on random data."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiperf.errors import AiperfError
from aiperf.host import this_host
from aiperf.network.architecture import Architecture
from aiperf.network.operations import AIPERF_1, RuleSet
from aiperf.network.science import SCIENCE_1
from aiperf.wire.messages import ArchitectureRequest
from replica.measure.profile.networks import NETWORK_STEPS
from replica.measure.profile.networks.batches import RandomBatches
from replica.measure.profile.settings import ProfileSettings, architecture_of
from replica.trainer.collectives.contract import Collective
from replica.trainer.data import open_source
from replica.trainer.data.contract import RankShare, blank_batch
from replica.trainer.framework import Framework
from replica.trainer.model import builder
from replica.trainer.model.optimisers import build_optimiser
from workloads.classification import CLASSIFICATION


@dataclass(frozen=True)
class Subject:
    """A model with its steps and its batches, which never end."""

    architecture: Architecture
    rule_set: RuleSet
    model: Any
    optimiser: Any
    steps: Any
    """Steps: `CompiledSteps`, or `NetworkSteps`, whose batches have no labels."""
    batches: Iterator[tuple[Any, ...]]

    def train(self, batch: tuple[Any, ...]) -> None:
        """Do one step, and wait for it."""
        self.steps.read([self.steps.train(*batch)])

    def evaluate(self, batch: tuple[Any, ...]) -> None:
        """Evaluate one batch, and wait for it."""
        self.steps.read([self.steps.evaluate(*batch)])


def open_subject(settings: ProfileSettings, framework: Framework, collective: Collective) -> Subject:
    """Build the model and open the data that the settings name.

    Raises AiperfError if data or architecture do not fit.
    """
    request = _request(settings)
    builder.set_up(request.precision, request.seed)
    architecture = architecture_of(settings)
    model = builder.build_model(architecture)
    builder.check_model(model, architecture)
    # The name of the optimiser is one that `phases.phase_of` looks for.
    optimiser = build_optimiser(model, request)
    rules = AIPERF_1 if settings.workload is None else SCIENCE_1
    if settings.on_random_data:
        own = NETWORK_STEPS.load(settings.framework)(model, optimiser, collective, settings.batch_size, settings.xla)
        random = iter(RandomBatches.of(architecture.input_shape, settings.batch_size))
        return Subject(architecture, rules, model, optimiser, own, random)
    dataset = CLASSIFICATION.dataset(request)
    steps = framework.compile(model, optimiser, CLASSIFICATION, collective, request)
    source = open_source(request, dataset, framework.pipeline)
    if settings.ranks == 1:
        steps.prepare(partial(blank_batch, source, CLASSIFICATION), [settings.batch_size])
    batches = _endless(source, settings.batch_size, RankShare(collective.rank, collective.size))
    return Subject(architecture, rules, model, optimiser, steps, batches)


def _endless(source: Any, batch_size: int, share: RankShare) -> Iterator[tuple[Any, ...]]:
    """Yield whole batches, epoch after epoch. Raises AiperfError if an epoch has none."""
    epoch = 0
    while True:
        epoch += 1
        whole = False
        for pair in source.train_batches(batch_size, 1, epoch, share):
            if int(pair[0].shape[0]) == batch_size:
                whole = True
                yield pair
        if not whole:
            raise AiperfError(f"the data set has no whole batch of {batch_size} images")


def _request(settings: ProfileSettings) -> ArchitectureRequest:
    return ArchitectureRequest(
        architecture_path="",
        dataset=settings.dataset,
        data_dir=settings.data_dir,
        synthetic_input=settings.synthetic_input,
        parallel_decode=max(1, this_host().usable_cpus() // settings.ranks),
        batch_size=settings.batch_size,
        epochs=1,
        max_epochs=60,
        patience=9,
        seed=1,
        learning_rate=0.1,
        momentum=0.9,
        label_smoothing=0.1,
        precision=settings.precision,
        compile="on" if settings.xla else "off",
        progress_interval_s=5.0,
    )
