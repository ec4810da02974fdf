"""GPUs that the driver shows and the framework does not see: a run refuses to use the CPU."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig, load_config
from aiperf.errors import TrialFailedError
from aiperf.machine.accelerators import find_accelerators
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import UNFIT, TrainerPhase, TrainRequest
from analysis.results.verify import verify
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess
from tests.support.driver import environment_with_driver
from tests.support.hand_made import SIMULATED, aiperf
from tests.support.runs import raw_records
from tests.support.trainings.requests import request_for
from tests.support.virtual.lifecycle import conduct_virtually
from tests.support.virtual.time import Machine, VirtualTrainer

REMEDY = "make run GPU=1, or pip install '.[gpu]'"

no_gpu = pytest.mark.skipif(bool(find_accelerators({})), reason="TensorFlow may see the GPUs of this machine")


@no_gpu
def test_a_run_is_refused_before_its_first_trial(tmp_path: Path) -> None:
    output, environment = tmp_path / "run", environment_with_driver(tmp_path)
    words = ("--dataset", "digits", "--replicas", 1, "--duration", "60s", "--output", output)
    refused = aiperf("run", *words, environment=environment)
    assert refused.returncode == 1
    assert "replica 0 LOST: the driver shows 1 GPU (Fake H200), tensorflow " in refused.stderr
    assert REMEDY in refused.stderr
    kinds = [record["type"] for record in raw_records(output)]
    assert kinds.count("replica_lost") == 1, "starting it again would not help"
    assert not {"run_released", "job_issued"} & {*kinds}


@no_gpu
def test_a_rank_refuses_to_train(tmp_path: Path) -> None:
    """Also on the further nodes of a replica, where its agent is not."""
    setup = RankSetup(load_config(overrides={"run.dataset": "digits"}), environment=environment_with_driver(tmp_path))

    async def warm_up() -> None:
        trainer = await TrainerProcess.start(setup, request_for("digits"), tmp_path / "log")
        try:
            await trainer.until_ready(120)
        finally:
            await trainer.end()

    with pytest.raises(TrialFailedError, match=r"tensorflow .* sees none") as caught:
        asyncio.run(warm_up())
    assert caught.value.kind == UNFIT


def test_the_simulated_trainer_needs_no_gpu(tmp_path: Path) -> None:
    output, environment = tmp_path / "run", environment_with_driver(tmp_path)
    words = ("--replicas", 1, "--duration", "2s", "--set", "simulated.epoch_seconds=0.2", "--output", output)
    done = aiperf("run", *SIMULATED, *words, environment=environment)
    assert done.returncode == 0, done.stderr


class UnfitTrainer(VirtualTrainer):
    """Of the replica that is started second; the other one trains."""

    started = 0

    def __init__(self, request: TrainRequest, config: RunConfig, clock: Clock) -> None:
        super().__init__(request, config, clock)
        UnfitTrainer.started += 1
        self._unfit = UnfitTrainer.started == 2

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        """As a rank does that sees no GPU."""
        if self._unfit:
            raise TrialFailedError(UNFIT, "the driver shows 1 GPU")
        async for phase in super().warm_up(silence_s):
            yield phase


def test_an_unfit_machine_costs_one_trial_and_its_replica(tmp_path: Path) -> None:
    config = load_config(
        overrides={
            "run.dataset": "digits",
            "run.replicas": 2,
            "run.duration": "10m",
            "search.strategy": "random",
            "training.trainer": "simulated",
            "simulated.epoch_seconds": 60.0,
        }
    )
    shown = io.StringIO()
    assert conduct_virtually(tmp_path / "run", config, Machine(trainer=UnfitTrainer), shown) == "deadline"
    (lost,) = (record for record in raw_records(tmp_path / "run") if record["type"] == "replica_lost")
    assert lost["reason"] == "the driver shows 1 GPU"
    (failed,) = (record for record in raw_records(tmp_path / "run") if record["type"] == "trial_failed")
    assert (failed["kind"], failed["replica"]) == (UNFIT, lost["replica"])
    assert verify(RunPaths(tmp_path / "run")) == []
    assert f"run ended: deadline (1 of 2 replicas lost: replica {lost['replica']})" in shown.getvalue()
