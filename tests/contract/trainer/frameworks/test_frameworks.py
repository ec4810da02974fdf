"""One suite for every registered framework: its steps, on NumPy arrays and on its tensors."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.clock import SystemClock
from aiperf.config.frameworks import DEFAULT_FRAMEWORK
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import BatchNorm, Conv, Dense, Dropout, Flatten, Input, ReLU, Softmax
from aiperf.run_directory.step_evidence import hash_rows, read_rows
from aiperf.wire.messages import ArchitectureRequest, Begin, Phase
from replica.trainer.channel import RankReporter
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.data.portable.recipe import DEVIATION, MEAN
from replica.trainer.framework import CompiledSteps
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.model.builder import build_model, set_up
from replica.trainer.model.correct import MOST, CorrectImages
from replica.trainer.model.optimisers import build_optimiser
from replica.trainer.model.state import SEED_STATE, KerasState
from replica.trainer.model.weights import epoch_of
from replica.trainer.ready import ReadyTraining
from tests.support.driver import FakeDriver
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

SIDE, CLASSES = 8, 3

TINY = Architecture(
    (
        Node("in", Input(SIDE, SIDE, 3)),
        Node("conv", Conv(4, stride=(2, 2)), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("flat", Flatten(), ("relu",)),
        Node("fc", Dense(CLASSES), ("flat",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


def compiled(name: str, precision: str = "float32") -> tuple[CompiledSteps, Any]:
    request = request_for("digits", precision=precision)
    set_up(precision, seed=1)
    model = build_model(TINY)
    optimiser = build_optimiser(model, request)
    framework = FRAMEWORKS.load(name)()
    return framework.compile(model, optimiser, CLASSIFICATION, AloneCollective(), request), model


def batch(images: int, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = np.eye(CLASSES, dtype=np.float32)[rng.integers(CLASSES, size=images)]
    return rng.normal(size=(images, SIDE, SIDE, 3)).astype(np.float32), labels


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_numpy_arrays_and_tensors_train_the_same(trains_on: str) -> None:
    found = []
    steps, model = compiled(trains_on)
    before = steps.state()
    for convert in (np.asarray, keras.ops.convert_to_tensor):
        steps.restore(before)
        sums = [steps.train(*map(convert, batch(size))) for size in (6, 6)]
        scores = steps.evaluate(*map(convert, batch(5)))
        found.append((steps.read(sums), steps.read([scores]), model.get_weights()))
    (trained, scored, weights), (others, other_scores, other_weights) = found
    assert trained[:, 1].tolist() == [6, 6], "images"
    assert scored[:, -1] == 5
    assert scored.shape == (1, 2 + len(CLASSIFICATION.metrics))
    np.testing.assert_array_equal(trained, others)
    np.testing.assert_array_equal(scored, other_scores)
    for mine, other in zip(weights, other_weights, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("trains_on", [name for name in FRAMEWORKS if name != "tensorflow"])
def test_pixels_train_as_images_that_are_normalised(trains_on: str) -> None:
    assert FRAMEWORKS.load(trains_on)().pipeline == "numpy"
    pixels = np.random.default_rng(4).integers(0, 256, size=(6, SIDE, SIDE, 3), dtype=np.uint8)
    labels, rows = batch(6)[1], []
    for images in (pixels, ((pixels - np.array(MEAN)) / DEVIATION).astype(np.float32)):
        steps, _ = compiled(trains_on)
        trained = steps.read([steps.train(images, labels)])
        rows.append(np.concatenate([*trained, *steps.read([steps.evaluate(images, labels)])]))
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-5)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_evaluation_counts_hits_and_sums_losses(trains_on: str) -> None:
    steps, model = compiled(trains_on)
    images, labels = batch(7)
    outputs = np.asarray(keras.ops.convert_to_numpy(model(images, training=False)))
    ((loss, hits, count),) = steps.read([steps.evaluate(images, labels)])
    assert (hits, count) == ((outputs.argmax(1) == labels.argmax(1)).sum(), 7)
    assert loss == pytest.approx(-np.log((outputs * labels).sum(axis=1)).sum(), rel=1e-5)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_steps_count_the_training_images_that_they_classify_rightly(trains_on: str) -> None:
    steps, model = compiled(trains_on)
    steps.prepare(batch, (60, 33))
    for size in (60, 33):
        images, labels = batch(size, seed=size)
        steps.weights()  # JAX's variables get their values
        outputs = np.asarray(keras.ops.convert_to_numpy(model(images, training=True)))
        hits = int((outputs.argmax(1) == labels.argmax(1)).sum())
        assert 0 < hits < size
        steps.read([steps.train(images, labels)])
        assert steps.take_correct() == hits, "those of the weights before the update, and of no other step"
    assert steps.take_correct() == 0


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_more_images_than_float32_counts_one_by_one_have_no_count(trains_on: str) -> None:
    compiled(trains_on)
    counter, ranks = CorrectImages(), AloneCollective()
    counter.variable.assign(MOST - 5)
    counter.add(*[keras.ops.convert_to_tensor(np.eye(4, dtype=np.float32))] * 2)
    assert counter.take(ranks) == MOST - 1
    counter.variable.assign(MOST)
    assert counter.take(ranks) is None
    assert counter.take(ranks) == 0


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_kept_state_gives_the_same_training_again(trains_on: str) -> None:
    steps, _ = compiled(trains_on)
    steps.train(*batch(4))
    state, weights = steps.state(), steps.weights()
    first = steps.read([steps.train(*batch(4, seed)) for seed in (2, 3)])
    assert any((a != b).any() for a, b in zip(steps.weights(), weights, strict=True))
    steps.restore(state)
    for mine, other in zip(steps.weights(), weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    again = steps.read([steps.train(*batch(4, seed)) for seed in (2, 3)])
    np.testing.assert_allclose(again, first, rtol=1e-6)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_state_of_another_model_is_refused_and_changes_nothing(trains_on: str) -> None:
    steps, _ = compiled(trains_on)
    before = steps.state()
    for wrong in (before[:-1], [np.zeros((1, 2, 3)), *before[1:]]):
        with pytest.raises(ValueError, match="of another architecture"):
            steps.restore(wrong)
    for mine, other in zip(steps.state(), before, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_state_is_that_of_every_precision(trains_on: str) -> None:
    precisions = ("float32", "mixed_float16", "mixed_bfloat16")
    every = {precision: compiled(trains_on, precision)[0] for precision in precisions}
    for own in every.values():
        own.set_learning_rate(0.0123)
        own.train(*batch(4))
        weights = own.weights()
        for steps in every.values():
            steps.restore(own.state())
            for found, wanted in zip(steps.weights(), weights, strict=True):
                np.testing.assert_array_equal(found, wanted)


class Kept(RankReporter):
    """Records the reports."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.epochs: list[EpochFacts] = []

    def phase(self, phase: Phase) -> None:
        self.phases.append(phase)

    def epoch(self, facts: EpochFacts) -> None:
        self.epochs.append(facts)


@pytest.fixture
def whole_request(tmp_path: Path) -> ArchitectureRequest:
    """Two epochs of softmax regression with batch normalisation and dropout."""
    digits = Architecture(
        (
            Node("in", Input(32, 32, 3)),
            Node("bn", BatchNorm(), ("in",)),
            Node("flat", Flatten(), ("bn",)),
            Node("drop", Dropout(0.2), ("flat",)),
            Node("fc", Dense(10), ("drop",)),
            Node("softmax", Softmax(), ("fc",)),
        )
    )
    (tmp_path / "architecture.json").write_text(to_json(digits))
    return request_for("digits", architecture_path=str(tmp_path / "architecture.json"), batch_size=64, epochs=2)


def run(name: str, request: ArchitectureRequest, begin: Begin) -> Kept:
    framework = FRAMEWORKS.load(name)()
    kept = Kept()
    ready = ReadyTraining(framework, CLASSIFICATION, request, framework.open_collective(1), SystemClock())
    assert not ready.run(begin, kept)
    return kept


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_whole_training_warms_up_without_a_trace_and_its_evidence_can_be_repeated(
    trains_on: str, whole_request: ArchitectureRequest, tmp_path: Path
) -> None:
    file, rows_file = tmp_path / "weights.npz", tmp_path / "evidence" / "trial-000001.rows"
    first = run(trains_on, whole_request, Begin(trial=1, save_weights_path=str(file), evidence_path=str(rows_file)))
    assert first.phases == ["train", "evaluate", "train", "evaluate", "checkpoint"]
    assert [epoch.images_trained for epoch in first.epochs] == [1437, 1437]
    assert [epoch.learning_rate for epoch in first.epochs] == pytest.approx([0.1, 0.075])
    rows = read_rows(rows_file)
    for epoch in first.epochs:
        assert epoch.evidence == hash_rows(rows[epoch.epoch])
        images = np.array([64] * 22 + [29])
        assert epoch.loss == pytest.approx(np.average(rows[epoch.epoch]["loss"], weights=images), rel=1e-6)
        assert (rows[epoch.epoch]["step"] == np.arange(1, 24)).all()
    assert first.epochs[0].weights != first.epochs[1].weights

    steps_file = tmp_path / "steps.rows"
    steps = run(trains_on, whole_request, Begin(trial=1, only_steps=5, evidence_path=str(steps_file)))
    assert (steps.phases, steps.epochs) == (["train"], [])
    (again,) = read_rows(steps_file).values()
    for field in ("epoch", "step", "loss", "gradient_norm"):
        np.testing.assert_allclose(again[field], rows[1][:5][field], rtol=1e-4)

    evaluation = run(trains_on, whole_request, Begin(trial=1, evaluate_path=str(file)))
    assert evaluation.phases == ["evaluate"]
    (alone,) = evaluation.epochs
    best = first.epochs[(epoch_of(file) or 0) - 1]
    assert best.correct == max(epoch.correct or 0 for epoch in first.epochs)
    assert (alone.epoch, alone.images_trained, alone.images_evaluated) == (0, 0, 360)
    assert (alone.correct, alone.weights) == (best.correct, best.weights)
    assert alone.validation_loss == pytest.approx(best.validation_loss, rel=1e-5)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_training_resumes_after_its_checkpoint(
    trains_on: str, whole_request: ArchitectureRequest, tmp_path: Path
) -> None:
    # With the usual learning rate this network diverges, and rounding grows with it.
    request, checkpoint = replace(whole_request, learning_rate=1e-3), str(tmp_path / "checkpoint.npz")
    first, wanted = run(trains_on, request, Begin(trial=1, checkpoint_path=checkpoint)).epochs
    assert first.state is not None
    begin = Begin(trial=1, checkpoint_path=checkpoint, restore=1, states=(first.state,), checkpoint_interval_s=1e9)
    (resumed,) = run(trains_on, request, begin).epochs
    assert (resumed.epoch, resumed.learning_rate, resumed.resumed) == (2, wanted.learning_rate, first.state)
    assert resumed.loss == pytest.approx(wanted.loss, rel=1e-3)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_loss_that_is_not_a_number_ends_the_trial(trains_on: str, whole_request: ArchitectureRequest) -> None:
    request = replace(whole_request, learning_rate=3e38)
    with pytest.raises(TrialFailedError, match=r"nan: the loss is (nan|inf) in epoch 1"):
        run(trains_on, request, Begin(trial=1))


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_lack_of_memory_is_named(trains_on: str) -> None:
    with pytest.raises(Exception, match=r"(?i)memory|oom|bad_alloc") as caught:
        keras.ops.convert_to_numpy(keras.ops.zeros((1 << 50,)))
    assert FRAMEWORKS.load(trains_on)().kind_of(caught.value) == "out_of_memory"


def test_the_default_framework_is_registered_and_an_unknown_failure_has_no_kind() -> None:
    framework = FRAMEWORKS.load(DEFAULT_FRAMEWORK)()
    assert framework.kind_of(RuntimeError("x")) is None


class SecondRank(AloneCollective):
    """The second of two ranks; the first one has drawn 37 times."""

    rank, size = 1, 2

    def broadcast_vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.full_like(values.view(np.int32), 37).view(np.float32)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_resumed_rank_draws_on_with_its_own_seed(trains_on: str) -> None:
    set_up("float32", seed=2)
    drop, head = Node("drop", Dropout(0.5), ("flat",)), Node("fc", Dense(CLASSES), ("drop",))
    model = build_model(Architecture((*TINY.nodes[:-2], drop, head, TINY.nodes[-1])))
    state = KerasState(model, build_optimiser(model, request_for("digits")), SecondRank())
    (generator,) = (each for each in model.variables if each.name == SEED_STATE)
    seed, draws = keras.ops.convert_to_numpy(generator).tolist()
    assert draws == 0
    state.share()
    assert keras.ops.convert_to_numpy(generator).tolist() == [seed, 37]


@pytest.mark.parametrize("trains_on", ["tensorflow"])
@pytest.mark.parametrize(("gpus", "exchanges"), [(["GPU:0"], False), ([], True)])
def test_ranks_of_tensorflow_on_gpus_exchange_nothing_before_they_train(
    trains_on: str, gpus: list[str], exchanges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    done: list[int] = []

    def exchange() -> int:
        done.append(1)
        return 0

    class Exchanging(AloneCollective):
        size = 2

        def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
            with tf.control_dependencies([tf.py_function(exchange, [], tf.int32)]):
                return [tf.identity(each) for each in tensors]

    request = replace(request_for("digits"), compile="off")
    set_up("float32", seed=1)
    model = build_model(TINY)
    framework = FRAMEWORKS.load(trains_on)()
    steps = framework.compile(model, build_optimiser(model, request), CLASSIFICATION, Exchanging(), request)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    before = steps.state()
    steps.prepare(batch, (6,))
    assert bool(done) == exchanges
    for mine, other in zip(steps.state(), before, strict=True):
        np.testing.assert_array_equal(mine, other)
    steps.train(*batch(6))
    assert done


@pytest.mark.parametrize("trains_on", ["tensorflow"])
@pytest.mark.parametrize(
    ("asked", "gpus", "expected"),
    [("auto", ["GPU:0"], "XLA"), ("auto", [], "no"), ("on", [], "XLA"), ("off", ["GPU:0"], "no")],
)
def test_tensorflow_takes_xla_on_gpus_unless_it_is_forbidden(
    trains_on: str, asked: str, gpus: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    set_up("float32", seed=1)
    model, request = build_model(TINY), replace(request_for("digits"), compile=asked)
    optimiser, framework = build_optimiser(model, request), FRAMEWORKS.load(trains_on)()
    with monkeypatch.context() as patch:
        patch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
        steps: Any = framework.compile(model, optimiser, CLASSIFICATION, AloneCollective(), request)
    assert steps.compiled() == expected
    assert bool(steps.train._jit_compile) is (expected == "XLA")


@pytest.mark.parametrize("trains_on", ["tensorflow"])
@pytest.mark.parametrize(
    ("cards", "part", "mebibytes"), [(2, 1.0, None), (2, 0.5, 2048), (1, 0.25, 1024), (0, 0.5, None)]
)
def test_tensorflow_takes_its_part_of_a_cards_memory_as_it_grows(
    trains_on: str, cards: int, part: float, mebibytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    FakeDriver(gpus=cards).install(monkeypatch.setattr)  # 4 GiB each
    limits: list[tuple[str, float]] = []

    def configure(device: str, parts: Sequence[Any]) -> None:
        limits.extend((device, each.memory_limit) for each in parts)

    for name in ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads"):
        monkeypatch.setattr(tf.config.threading, name, lambda threads: None)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["first", "second"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda device, kind: None)
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", configure)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    rank = max(0, cards - 1)
    FRAMEWORKS.load(trains_on)().configure(1, rank, part)
    assert limits == ([] if mebibytes is None else [(("first", "second")[rank], mebibytes)])
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
