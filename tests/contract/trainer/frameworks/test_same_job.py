"""The same job on every framework: protocol, losses, evaluation, inheritance."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.config.datasets import DIGITS
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import ConfigError
from aiperf.facts import BuiltFacts, EpochFacts
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import to_json
from aiperf.run_directory.step_evidence import read_rows
from aiperf.wire.messages import (
    ArchitectureRequest,
    Begin,
    InheritedWeights,
    TrainerDone,
    TrainerPhase,
    TrainerProgress,
)
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.model import weights
from search_space.morphisms import Deepen, morph_data
from tests.support.trainings.installed import need_frameworks
from tests.support.trainings.programs import TINY, collect, epochs_of
from tests.support.trainings.requests import request_for

STEPS = 10


def config_on(framework: str) -> RunConfig:
    return load_config(overrides={"run.dataset": "digits", "training.framework": framework})


def tiny_request(folder: Path, architecture: Architecture = TINY, **changes: Any) -> ArchitectureRequest:
    path = folder / f"{architecture.hash}.json"
    path.write_text(to_json(architecture))
    fields = {"batch_size": 64, "epochs": 2, "progress_interval_s": 0.02, **changes}
    return request_for("digits", architecture_path=str(path), **fields)


@dataclass(frozen=True)
class Trained:
    """A training of two epochs on one framework, and what it left."""

    messages: list[Any]
    built: BuiltFacts
    folder: Path

    @property
    def weights(self) -> Path:
        return self.folder / "weights.npz"

    @property
    def best(self) -> EpochFacts:
        return epochs_of(self.messages)[(weights.epoch_of(self.weights) or 0) - 1]


Train = Callable[[str], Trained]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Train:
    @lru_cache
    def train(framework: str) -> Trained:
        need_frameworks(framework)
        folder = tmp_path_factory.mktemp(framework)
        begin = Begin(
            trial=1, save_weights_path=str(folder / "weights.npz"), checkpoint_path=str(folder / "checkpoint.npz")
        )
        built: list[Any] = []
        messages = asyncio.run(collect(config_on(framework), tiny_request(folder), folder / "log", begin, built))
        return Trained(list(messages), built[0], folder)

    return train


@pytest.mark.parametrize("framework", list(FRAMEWORKS))
def test_phases_progress_and_every_image_once(framework: str, trained: Train) -> None:
    done = trained(framework)
    assert done.built.framework.startswith(f"{framework} ")
    assert (done.built.architecture, done.built.compute, done.built.devices) == (TINY.hash, {"float32": 2}, ("cpu",))
    epochs = epochs_of(done.messages)
    assert [(epoch.images_trained, epoch.images_evaluated) for epoch in epochs] == [
        (DIGITS.train_images, DIGITS.validation_images)
    ] * 2
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([0.1, 0.075])
    assert epochs[1].loss < epochs[0].loss, "it learns"
    phases = [message.phase for message in done.messages if isinstance(message, TrainerPhase)]
    # The state is kept after the first epoch, the best weights at the end.
    assert phases == ["start", "build", "train", "evaluate", "checkpoint", "train", "evaluate", "checkpoint"]
    progress = [message for message in done.messages if isinstance(message, TrainerProgress)]
    assert all(0 < report.facts.images_trained <= DIGITS.train_images for report in progress)
    assert isinstance(done.messages[-1], TrainerDone)


def a_few_steps(framework: str, start: Trained, folder: Path) -> tuple[Any, EpochFacts]:
    """Rows of the first steps from these weights, and the evaluation of the weights."""
    request, rows = tiny_request(folder), folder / f"{framework}.rows"
    inherited = InheritedWeights(
        architecture_path=request.architecture_path, weights_path=str(start.weights), morphs=(), noise=0.0
    )
    begin = Begin(
        trial=1, inherited=inherited, only_steps=STEPS, evidence_path=str(rows), evaluate_path=str(start.weights)
    )
    (evaluated,) = epochs_of(asyncio.run(collect(config_on(framework), request, folder / "log", begin)))
    return read_rows(rows)[1], evaluated


@pytest.fixture(scope="module")
def reference(trained: Train, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, EpochFacts]:
    return a_few_steps("tensorflow", trained("tensorflow"), tmp_path_factory.mktemp("reference"))


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "tensorflow"])
def test_ten_steps_and_an_evaluation_are_those_of_the_reference(
    framework: str, trained: Train, reference: tuple[Any, EpochFacts], tmp_path: Path
) -> None:
    need_frameworks(framework)
    start = trained("tensorflow")
    (rows_wanted, wanted), (rows_found, evaluated) = reference, a_few_steps(framework, start, tmp_path)
    assert len(rows_found) == STEPS
    np.testing.assert_allclose(rows_found["loss"], rows_wanted["loss"], rtol=1e-3)
    np.testing.assert_allclose(rows_found["gradient_norm"], rows_wanted["gradient_norm"], rtol=1e-2)
    assert evaluated.correct == wanted.correct == start.best.correct
    assert evaluated.validation_loss == pytest.approx(wanted.validation_loss, rel=1e-4)


@pytest.mark.parametrize(("parent", "child"), [("torch", "jax")])
def test_a_child_on_another_framework_has_its_parents_function(
    parent: str, child: str, trained: Train, tmp_path: Path
) -> None:
    # Weights of TensorFlow on the others: in the steps above.
    need_frameworks(parent, child)
    before, morph = trained(parent), Deepen("relu")
    grown = morph.apply(TINY)
    inherited = InheritedWeights(
        architecture_path=tiny_request(tmp_path).architecture_path,
        weights_path=str(before.weights),
        morphs=(morph_data(morph),),
        noise=0.0,
    )
    file = tmp_path / "child.npz"
    weights.save(file, weights.inherited(inherited, grown, seed=1))
    begin = Begin(trial=2, evaluate_path=str(file))
    (found,) = epochs_of(asyncio.run(collect(config_on(child), tiny_request(tmp_path, grown), tmp_path / "log", begin)))
    assert found.correct == before.best.correct
    assert found.validation_loss == pytest.approx(before.best.validation_loss, rel=1e-4)


def test_jax_is_not_asked_to_compile_nothing() -> None:
    with pytest.raises(ConfigError, match=r"training\.compile: off; JAX always compiles"):
        load_config(overrides={"training.framework": "jax", "training.compile": "off"})
