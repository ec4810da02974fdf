"""Seconds until a training of ResNet-50 on the digits is ready: imports, model, graphs.

`python -m benchmarks.trainings.ready FRAMEWORK RANKS` prints wall time and CPU time of its ranks
and of what starts them. In another checkout, with PYTHONPATH set to it, it measures that one.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import psutil

from aiperf.clock import SystemClock
from aiperf.config.settings import load_config
from aiperf.network.json_files import to_json
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.trainer_process import TrainerProcess
from search_space.resnet import resnet
from tests.support.trainings.requests import request_for

LONGEST_S = 300.0


async def measure(framework: str, ranks: int, folder: Path) -> dict[str, float]:
    """Start a training, wait until it is ready, and end it. Raises TrialFailedError."""
    architecture, clock = folder / "architecture.json", SystemClock()
    architecture.write_text(to_json(resnet(50, 32, 10)))
    request = request_for("digits", architecture_path=str(architecture), batch_size=64)
    config = load_config(overrides={"run.dataset": "digits", "training.framework": framework, "replica.ranks": ranks})
    began_s = clock.monotonic_s()
    trainer = await TrainerProcess.start(RankSetup(config, ranks, cpu_threads=1), request, folder / "log")
    try:
        await trainer.until_ready(LONGEST_S)
        wall_s = clock.monotonic_s() - began_s
        times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    finally:
        await trainer.end()
    cpu_s = sum(each.user + each.system + each.children_user + each.children_system for each in times)
    return {"wall_s": round(wall_s, 1), "cpu_s": round(cpu_s, 1)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), Path(name)))))
