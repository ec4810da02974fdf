"""One suite for every trainer program: the real one and the simulated one speak the same protocol."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiperf.architecture import Architecture, Node
from aiperf.architecture_json import to_json
from aiperf.config import RunConfig, load_config
from aiperf.datasets import DIGITS
from aiperf.errors import TrialFailedError
from aiperf.layers import BatchNorm, Conv, Dense, Flatten, Input, ReLU, Softmax
from aiperf.messages import (
    FromTrainer,
    InheritedWeights,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
    decode_from_trainer,
    encode,
)
from replica.trainer.channel import ORPHANED_EXIT
from replica.trainer_process import TrainerProcess, trainer_command
from search_space.morph_json import morph_data
from search_space.morphisms import Deepen

TINY = Architecture(
    (
        Node("in", Input(32, 32, 3)),
        Node("conv", Conv(8, stride=(4, 4)), ("in",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("flat", Flatten(), ("relu",)),
        Node("fc", Dense(10), ("flat",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


@pytest.fixture(params=["keras", "simulated"])
def config(request: pytest.FixtureRequest) -> RunConfig:
    return load_config(overrides={"run.dataset": "digits", "training.trainer": request.param})


MakeRequest = Callable[..., TrainRequest]


@pytest.fixture
def make_request(tmp_path: Path) -> MakeRequest:
    def make(architecture: Architecture = TINY, **changes: Any) -> TrainRequest:
        path = tmp_path / "architecture.json"
        path.write_text(to_json(architecture))
        fields: dict[str, Any] = {
            "trial": 1, "architecture_path": str(path), "dataset": "digits", "batch_size": 64, "epochs": 2,
            "max_epochs": 4, "patience": 9, "seed": 3, "learning_rate": 0.1, "momentum": 0.9,
            "label_smoothing": 0.1, "precision": "float32", "xla": False, "cpu_threads": 2,
            "progress_interval_s": 0.02,
        }  # fmt: skip
        return TrainRequest(**{**fields, **changes})

    return make


async def collect(config: RunConfig, request: TrainRequest, log: Path) -> list[FromTrainer]:
    trainer = await TrainerProcess.start(config, request, log)
    try:
        return [message async for message in trainer.messages(120)]
    finally:
        await trainer.end()


def test_a_training_reports_phases_progress_and_every_image_once(
    config: RunConfig, make_request: MakeRequest, tmp_path: Path
) -> None:
    messages = asyncio.run(collect(config, make_request(), tmp_path / "log"))
    epochs = [message for message in messages if isinstance(message, TrainerEpoch)]
    assert [epoch.epoch for epoch in epochs] == [1, 2]
    for epoch in epochs:
        # 1,437 = 22 x 64 + 29: the partial batch is trained and counted too.
        assert (epoch.images_trained, epoch.images_evaluated) == (DIGITS.train_images, DIGITS.validation_images)
        assert 0 <= epoch.correct <= epoch.images_evaluated
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([0.1, 0.075])
    phases = [message.phase for message in messages if isinstance(message, TrainerPhase)]
    assert phases == ["start", "build", "train", "evaluate", "train", "evaluate"]
    progress = [message for message in messages if isinstance(message, TrainerProgress)]
    assert progress
    assert all(0 < report.images_trained <= DIGITS.train_images for report in progress)
    times = [message.monotonic_ms for message in messages]
    assert times == sorted(times)
    done = messages[-1]
    assert isinstance(done, TrainerDone)
    assert not done.early


def test_the_real_trainer_learns(make_request: MakeRequest, tmp_path: Path) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    messages = asyncio.run(collect(config, make_request(epochs=5, max_epochs=5), tmp_path / "log"))
    epochs = [message for message in messages if isinstance(message, TrainerEpoch)]
    assert epochs[-1].loss < epochs[0].loss - 0.1
    assert epochs[-1].correct > 0.5 * epochs[-1].images_evaluated, "ten classes: chance is 0.1"


@pytest.mark.parametrize("setting", [{"precision": "mixed_bfloat16"}, {"xla": True}])
def test_the_real_trainer_learns_in_every_setting(
    make_request: MakeRequest, tmp_path: Path, setting: dict[str, Any]
) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    messages = asyncio.run(collect(config, make_request(epochs=4, max_epochs=4, **setting), tmp_path / "log"))
    epochs = [message for message in messages if isinstance(message, TrainerEpoch)]
    assert [epoch.images_trained for epoch in epochs] == [DIGITS.train_images] * 4
    assert epochs[-1].correct > 0.5 * epochs[-1].images_evaluated


def test_the_real_trainer_keeps_the_best_weights_and_a_child_starts_from_them(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    kept = tmp_path / "weights.npz"
    parent = asyncio.run(
        collect(config, make_request(epochs=5, max_epochs=5, save_weights_path=str(kept)), tmp_path / "log")
    )
    (tmp_path / "parent.json").write_text(to_json(TINY))
    morph = Deepen("relu")
    inherited = InheritedWeights(
        architecture_path=str(tmp_path / "parent.json"),
        weights_path=str(kept),
        morphs=(morph_data(morph),),
        noise=0.0,
    )
    # A learning rate of next to nothing: what the child knows, it has inherited.
    request = make_request(morph.apply(TINY), epochs=1, learning_rate=1e-9, inherited=inherited)
    child = asyncio.run(collect(config, request, tmp_path / "log"))
    best = max(message.correct for message in parent if isinstance(message, TrainerEpoch))
    first = next(message.correct for message in child if isinstance(message, TrainerEpoch))
    assert first > 0.8 * best, "batch statistics of the new block are those of one epoch"
    assert [message.phase for message in parent if isinstance(message, TrainerPhase)][-1] == "checkpoint"


def test_patience_ends_a_training_early(config: RunConfig, make_request: MakeRequest, tmp_path: Path) -> None:
    # With so small a learning rate nothing improves; the simulated curve is flat over so many epochs.
    request = make_request(epochs=30, max_epochs=1_000_000, patience=1, learning_rate=1e-12)
    done = asyncio.run(collect(config, request, tmp_path / "log"))[-1]
    assert isinstance(done, TrainerDone)
    assert done.early


def test_a_killed_trainer_is_a_crash_with_the_signal_and_the_log(
    config: RunConfig, make_request: MakeRequest, tmp_path: Path
) -> None:
    async def scenario() -> None:
        trainer = await TrainerProcess.start(config, make_request(epochs=1000, max_epochs=1000), tmp_path / "log")
        with pytest.raises(TrialFailedError, match=r"crash: the trainer ended with killed by SIGKILL; end of .*log"):
            async for message in trainer.messages(120):
                if isinstance(message, TrainerEpoch):
                    os.kill(trainer.pid, signal.SIGKILL)
        await trainer.end()

    asyncio.run(scenario())


def test_a_trainer_ends_when_its_agent_is_gone(config: RunConfig, make_request: MakeRequest) -> None:
    request = make_request(epochs=1000, max_epochs=1000)
    with subprocess.Popen(trainer_command(config), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        trainer.stdin.write(encode(request))
        trainer.stdin.flush()
        while not isinstance(decode_from_trainer(trainer.stdout.readline()), TrainerEpoch):
            pass
        trainer.stdin.close()
        assert trainer.wait(20) == ORPHANED_EXIT


def test_a_corrupt_architecture_fails_the_trial(config: RunConfig, make_request: MakeRequest, tmp_path: Path) -> None:
    request = make_request()
    Path(request.architecture_path).write_text("{")
    with pytest.raises(TrialFailedError):
        asyncio.run(checked(config, request, tmp_path / "log"))


async def checked(config: RunConfig, request: TrainRequest, log: Path) -> None:
    messages = await collect(config, request, log)
    if messages[-1].type == "failed":
        raise TrialFailedError(messages[-1].kind, messages[-1].reason)


def test_the_real_trainer_refuses_an_architecture_that_does_not_fit_the_data(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    nodes = tuple(Node(n.name, Dense(12) if n.name == "fc" else n.layer, n.inputs) for n in TINY.nodes)
    with pytest.raises(TrialFailedError, match=r"build: the architecture maps .* to \(12,\); the data set needs"):
        asyncio.run(checked(config, make_request(Architecture(nodes)), tmp_path / "log"))


def test_the_real_trainer_ends_at_a_loss_that_is_no_number(make_request: MakeRequest, tmp_path: Path) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    with pytest.raises(TrialFailedError, match="nan: the loss is nan in epoch 1"):
        asyncio.run(checked(config, make_request(learning_rate=3e38), tmp_path / "log"))
