"""Image classification, the workload of AutoML."""

from pathlib import Path

import keras
import numpy as np
import pytest
from msgspec.structs import replace

from aiperf.errors import TrialFailedError
from aiperf.network.json_files import to_json
from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.model import objectives
from replica.trainer.model.builder import build_model
from search_space.resnet import resnet
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION
from workloads.contract import PerExample, Sums


def small_request(tmp_path: Path) -> ArchitectureRequest:
    path = tmp_path / "architecture.json"
    path.write_text(to_json(resnet(50, 32, 10)))
    return request_for("digits", architecture_path=str(path))


def test_blank_batches_fit_the_model_and_give_every_sum(tmp_path: Path) -> None:
    workload, request = CLASSIFICATION, small_request(tmp_path)
    dataset = workload.dataset(request)
    model = build_model(workload.architecture(request, dataset))
    for examples in (0, 1, 3):
        inputs, labels = workload.blank(examples, dataset)
        assert {inputs.dtype, labels.dtype} == {np.dtype(np.float32)}
        assert len(inputs) == len(labels) == examples
        if examples == 0:
            continue
        outputs = model(inputs)
        for function in (workload.training_loss(request), workload.validation_loss(request), *workload.metrics):
            values = np.asarray(objectives.find(function)(labels, outputs))
            assert values.shape == (examples,)
            assert np.isfinite(values).all()


def test_an_architecture_with_another_hash_than_the_request_is_refused(tmp_path: Path) -> None:
    workload, request = CLASSIFICATION, small_request(tmp_path)
    dataset = workload.dataset(request)
    found = workload.architecture(request, dataset)
    exact = replace(request, architecture_hash=found.hash)
    assert workload.architecture(exact, dataset) == found
    other = replace(request, architecture_hash="0" * 16)
    with pytest.raises(TrialFailedError, match=f"build: .* holds the architecture {found.hash}, not {'0' * 16}"):
        workload.architecture(other, dataset)


def test_facts_have_means_and_a_quality() -> None:
    workload = CLASSIFICATION
    metrics = tuple(10.0 for _ in workload.metrics)
    facts = workload.facts(3, 0.01, Sums(40, 20.0), Sums(10, 30.0, metrics))
    assert (facts.epoch, facts.learning_rate) == (3, 0.01)
    assert (facts.images_trained, facts.images_evaluated) == (40, 10)
    assert (facts.loss, facts.validation_loss) == (0.5, 3.0)
    assert facts.quality == 1, "every metric is perfect"


def test_top_1_and_smoothed_cross_entropy_by_hand(tmp_path: Path) -> None:
    request = replace(small_request(tmp_path), label_smoothing=0.1)
    labels = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    outputs = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], np.float32)
    (top_1,) = CLASSIFICATION.metrics
    assert np.asarray(objectives.find(top_1)(labels, outputs)).tolist() == [1, 0, 1]
    plain = objectives.find(CLASSIFICATION.validation_loss(request))(labels, outputs)
    np.testing.assert_allclose(np.asarray(plain), -np.log([0.9, 0.2, 0.6]), rtol=1e-5)
    smoothed = objectives.find(CLASSIFICATION.training_loss(request))(labels, outputs)
    wanted = [-0.95 * np.log(a) - 0.05 * np.log(b) for a, b in ((0.9, 0.1), (0.2, 0.8), (0.6, 0.4))]
    np.testing.assert_allclose(np.asarray(smoothed), wanted, rtol=1e-5)


def test_a_loss_that_keras_lacks_is_named() -> None:
    with pytest.raises(TrialFailedError, match="build: Keras has no loss or metric 'soft_focal'"):
        objectives.find(PerExample("soft_focal"))
    assert not hasattr(keras.losses, "soft_focal")


def test_sums_are_read_from_the_order_of_the_steps() -> None:
    found = Sums.of(np.array([12.5, 7.0, 3.0, 20.0]))
    assert found == Sums(examples=20, loss=12.5, metrics=(7.0, 3.0))
