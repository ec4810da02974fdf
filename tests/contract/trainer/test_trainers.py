"""One suite for every trainer program: they all speak the same protocol."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from aiperf.config.datasets import DIGITS
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import Dense
from aiperf.source_code import source_hash
from aiperf.wire.lines import encode
from aiperf.wire.messages import (
    ArchitectureRequest,
    Begin,
    FromTrainer,
    InheritedWeights,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
    TrainerProgress,
)
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess
from replica.trainer.programs import TRAINERS
from search_space.morphisms import Deepen, morph_data
from tests.support.processes import all_end
from tests.support.trainings.programs import BEGIN, TINY, collect, epochs_of
from tests.support.trainings.requests import request_of


@pytest.fixture(params=list(TRAINERS))
def config(request: pytest.FixtureRequest) -> RunConfig:
    return load_config(overrides={"run.dataset": "digits", "training.trainer": request.param})


MakeRequest = Callable[..., ArchitectureRequest]


def request_in(folder: Path, architecture: Architecture = TINY, **changes: Any) -> ArchitectureRequest:
    return request_of(architecture, folder, **{"batch_size": 64, **changes})


@pytest.fixture
def make_request(tmp_path: Path) -> MakeRequest:
    return partial(request_in, tmp_path)


def quality_of(epoch: EpochFacts) -> float:
    assert epoch.quality is not None
    return epoch.quality


def test_a_training_reports_phases_progress_and_every_image_once(
    config: RunConfig, make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    monkeypatch.setenv("TF_API_KEY_OF_AN_OPERATOR", "secret")
    facts: list[Any] = []
    messages = asyncio.run(collect(config, make_request(), tmp_path / "log", BEGIN, facts))
    (built,) = facts
    trains = config.training.trainer == "keras"
    assert built.architecture == TINY.hash
    assert built.compute == ({"float32": 2} if trains else {})
    assert built.devices == ("cpu" if trains else "none",)
    assert built.framework.startswith("tensorflow" if trains else "simulated")
    assert built.source_hash == source_hash()
    assert built.environment["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    assert "TF_API_KEY_OF_AN_OPERATOR" not in built.environment
    epochs = epochs_of(messages)
    assert [epoch.epoch for epoch in epochs] == [1, 2]
    for epoch in epochs:
        # 1,437 = 22 x 64 + 29: the partial batch is trained and counted too.
        assert (epoch.images_trained, epoch.images_evaluated) == (DIGITS.train_images, DIGITS.validation_images)
        assert 0 <= quality_of(epoch) <= 1
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([0.1, 0.075])
    phases = [message.phase for message in messages if isinstance(message, TrainerPhase)]
    assert phases == ["start", "build", "train", "evaluate", "train", "evaluate"]
    progress = [message for message in messages if isinstance(message, TrainerProgress)]
    assert progress
    assert all(0 < report.facts.images_trained <= DIGITS.train_images for report in progress)
    times = [message.monotonic_ms for message in messages]
    assert times == sorted(times)
    done = messages[-1]
    assert isinstance(done, TrainerDone)
    assert not done.early


Parent = tuple[list[FromTrainer], Path]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Parent:
    """The messages of a real training, and its best weights."""
    folder = tmp_path_factory.mktemp("parent")
    kept = folder / "weights.npz"
    begin = Begin(trial=1, save_weights_path=str(kept))
    config = load_config(overrides={"run.dataset": "digits"})
    messages = asyncio.run(collect(config, request_in(folder, epochs=5, max_epochs=5), folder / "log", begin))
    return messages, kept


def test_the_real_trainer_learns(parent: Parent) -> None:
    messages, _ = parent
    epochs = epochs_of(messages)
    assert epochs[-1].loss < epochs[0].loss - 0.1
    assert quality_of(epochs[-1]) > 0.5, "ten classes: chance is 0.1"


@pytest.mark.parametrize(
    "setting", [{"precision": "mixed_bfloat16"}, {"precision": "mixed_float16"}, {"compile": "on"}]
)
def test_the_real_trainer_learns_in_every_setting(
    make_request: MakeRequest, tmp_path: Path, setting: dict[str, Any]
) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    messages = asyncio.run(collect(config, make_request(epochs=4, max_epochs=4, **setting), tmp_path / "log"))
    epochs = epochs_of(messages)
    assert [epoch.images_trained for epoch in epochs] == [DIGITS.train_images] * 4
    assert quality_of(epochs[-1]) > 0.5


@pytest.mark.parametrize("killed", [False, True])
def test_a_training_leaves_no_temporary_files(
    make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)

    async def scenario() -> None:
        config = load_config(overrides={"run.dataset": "digits"})
        request = make_request(epochs=1000, max_epochs=1000, patience=1000) if killed else make_request()
        trainer = await TrainerProcess.start(RankSetup(config, cpu_threads=2), request, tmp_path / "log")
        await trainer.until_ready(120)
        (own,) = folder.iterdir()
        (own / "autograph.py").write_text("")  # such as TensorFlow writes for some pipelines
        await trainer.begin(BEGIN)
        async for message in trainer.messages(120):
            if isinstance(message, TrainerEpoch) and killed:
                break
        left = list(folder.iterdir())
        await trainer.end()
        assert bool(left) == killed, "a rank that ends in order has removed its files itself"

    asyncio.run(scenario())
    assert list(folder.iterdir()) == []


def test_the_real_trainer_keeps_the_best_weights_and_a_child_starts_from_them(
    parent: Parent, make_request: MakeRequest, tmp_path: Path
) -> None:
    messages, kept = parent
    config = load_config(overrides={"run.dataset": "digits"})
    (tmp_path / "parent.json").write_text(to_json(TINY))
    morph = Deepen("relu")
    inherited = InheritedWeights(
        architecture_path=str(tmp_path / "parent.json"),
        weights_path=str(kept),
        morphs=(morph_data(morph),),
        noise=0.0,
    )
    # A learning rate of next to nothing: what the child knows, it has inherited.
    request = make_request(morph.apply(TINY), epochs=1, learning_rate=1e-9)
    child = asyncio.run(collect(config, request, tmp_path / "log", Begin(trial=2, inherited=inherited)))
    best = max(map(quality_of, epochs_of(messages)))
    first = quality_of(epochs_of(child)[0])
    assert first > 0.8 * best, "batch statistics of the new block are those of one epoch"
    assert [message.phase for message in messages if isinstance(message, TrainerPhase)][-1] == "checkpoint"


def test_patience_ends_a_training_early(config: RunConfig, make_request: MakeRequest, tmp_path: Path) -> None:
    # With this learning rate nothing improves; the simulated curve is flat over a million epochs.
    request = make_request(epochs=30, max_epochs=1_000_000, patience=1, learning_rate=1e-12)
    done = asyncio.run(collect(config, request, tmp_path / "log"))[-1]
    assert isinstance(done, TrainerDone)
    assert done.early


def test_a_killed_trainer_is_a_crash_with_the_signal_and_the_log(
    config: RunConfig, make_request: MakeRequest, tmp_path: Path
) -> None:
    async def scenario() -> None:
        request = make_request(epochs=1000, max_epochs=1000)
        trainer = await TrainerProcess.start(RankSetup(config), request, tmp_path / "log")
        await trainer.until_ready(120)
        await trainer.begin(Begin(trial=1))
        with pytest.raises(TrialFailedError, match=r"crash: the trainer was killed by SIGKILL; end of .*log"):
            async for message in trainer.messages(120):
                if isinstance(message, TrainerEpoch):
                    os.kill(trainer.pid, signal.SIGKILL)
        await trainer.end()

    asyncio.run(scenario())


ORPHAN = """
import asyncio, sys
from pathlib import Path
from aiperf.config.settings import RunConfig
from aiperf.wire.lines import decode_train_request
from aiperf.wire.messages import Begin, TrainerEpoch
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess

async def main():
    setup = RankSetup(RunConfig.model_validate_json(sys.argv[1], strict=False), ranks=int(sys.argv[4]))
    request = decode_train_request(sys.argv[2].encode())
    trainer = await TrainerProcess.start(setup, request, Path(sys.argv[3]))
    await trainer.until_ready(120)
    await trainer.begin(Begin(trial=1))
    async for message in trainer.messages(120):
        if isinstance(message, TrainerEpoch):
            print(trainer.pid, flush=True)

asyncio.run(main())
"""
"""An agent that trains and prints its trainer's process id after every epoch."""


def test_a_trainer_ends_when_its_agent_is_gone(config: RunConfig, make_request: MakeRequest, tmp_path: Path) -> None:
    request = make_request(epochs=1000, max_epochs=1000)
    words = [sys.executable, "-c", ORPHAN, config.model_dump_json(), encode(request).decode(), str(tmp_path / "log")]
    with subprocess.Popen([*words, "1"], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        trainer = psutil.Process(int(agent.stdout.readline()))
        agent.kill()
        assert all_end([trainer])


def test_a_corrupt_architecture_fails_the_trial(config: RunConfig, make_request: MakeRequest, tmp_path: Path) -> None:
    request = make_request()
    Path(request.architecture_path).write_text("{")
    with pytest.raises(TrialFailedError):
        asyncio.run(collect(config, request, tmp_path / "log"))


def test_an_architecture_file_that_was_swapped_fails_the_trial(
    config: RunConfig, make_request: MakeRequest, tmp_path: Path
) -> None:
    deeper = Deepen("relu").apply(TINY)
    request = make_request(deeper, architecture_hash=TINY.hash)
    with pytest.raises(TrialFailedError, match=rf"build: .* holds the architecture {deeper.hash}, not {TINY.hash}"):
        asyncio.run(collect(config, request, tmp_path / "log"))


def test_a_checkpoint_that_was_planted_is_not_resumed_from(
    config: RunConfig, make_request: MakeRequest, tmp_path: Path
) -> None:
    request, begin = make_request(), Begin(trial=1, checkpoint_path=str(tmp_path / "checkpoint.npz"))
    asyncio.run(collect(config, request, tmp_path / "log", begin))
    assert (tmp_path / "checkpoint.npz").exists(), "an intact one of this very architecture"
    fresh = asyncio.run(collect(config, request, tmp_path / "log", begin))
    assert [epoch.epoch for epoch in epochs_of(fresh)] == [1, 2]


def test_the_real_trainer_refuses_an_architecture_that_does_not_fit_the_data(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    nodes = tuple(Node(n.name, Dense(12) if n.name == "fc" else n.layer, n.inputs) for n in TINY.nodes)
    with pytest.raises(TrialFailedError, match=r"build: the architecture maps .* to \(12,\); the data set needs"):
        asyncio.run(collect(config, make_request(Architecture(nodes)), tmp_path / "log"))


def test_the_real_trainer_ends_at_a_loss_that_is_not_a_number(make_request: MakeRequest, tmp_path: Path) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    with pytest.raises(TrialFailedError, match=r"nan: the loss is (nan|inf) in epoch 1"):
        asyncio.run(collect(config, make_request(learning_rate=3e38), tmp_path / "log"))


def test_a_damaged_checkpoint_is_not_used(make_request: MakeRequest, tmp_path: Path) -> None:
    config = load_config(overrides={"run.dataset": "digits"})
    (tmp_path / "checkpoint.npz").write_bytes(b"PK not an archive")
    begin = Begin(
        trial=1,
        checkpoint_path=str(tmp_path / "checkpoint.npz"),
        restore=1,
        states=("0" * 64,),
        checkpoint_interval_s=1e9,
    )
    messages = asyncio.run(collect(config, make_request(epochs=1), tmp_path / "log", begin))
    assert [epoch.epoch for epoch in epochs_of(messages)] == [1]
    assert "cannot be used" in (tmp_path / "log").read_text()
