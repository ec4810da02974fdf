"""Two nodes in namespaces of this machine, and a training whose ranks are on both.

`python -m tests.support.hosts.two_nodes FOLDER INTERFACE GROUPS` trains on the first of them, and
prints the images of each epoch, then the bytes that left by each interface.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.wire.messages import Begin, TrainerEpoch
from replica.agent.trial.rank_setup import RankSetup
from replica.agent.trial.requests import hybrid_of
from replica.agent.trial.trainer_process import TrainerProcess
from tests.support.needs import need
from tests.support.trainings.ranks import request_for

ADDRESSES = ("10.76.0.1", "10.76.0.2")
"""Of the nodes by the first network, eth0; the second one, ib0, has 10.77."""

NAMESPACES = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--uts",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
AGENT = "OMPI_MCA_plm_rsh_agent"
SCRIPT = Path(__file__).with_suffix(".sh")


def need_two_nodes(folder: Path) -> None:
    """Skip the test, loudly, on a machine that lets this user make no namespaces."""
    need("unshare", "nsenter", "ip", "mpirun")
    tried = on_first_node(folder, "true")
    if tried.returncode != 0:
        pytest.skip(f"************ NOT TESTED: namespaces are forbidden here: {tried.stderr.strip()} ************")


def on_first_node(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the first node; an empty folder."""
    words = [*NAMESPACES, "sh", str(SCRIPT), str(folder), *command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)


def bytes_sent() -> dict[str, int]:
    """Bytes that this network namespace has sent by each interface (proc(5), /proc/net/dev)."""
    lines = [line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    return {name.strip(): int(counts.split()[8]) for name, counts in lines}


async def train(folder: Path, interface: str, groups: int) -> list[int]:
    """Images of each epoch of a training with a rank on either node."""
    chosen = {"replica.rank_starter": "mpirun", "training.framework": "torch", "replica.nodes": 2}
    own = {"run.dataset": "digits", "replica.interface": interface, "training.groups": groups}
    config = load_config(overrides={**own, **chosen})
    request = request_for(folder, hybrid=hybrid_of(config, "sgd", 0.9))
    trainer = await TrainerProcess.start(RankSetup(config, 2, 1, ADDRESSES), request, folder / "log")
    try:
        await trainer.until_ready(240)
        await trainer.begin(Begin(trial=1))
        return [each.facts.images_trained async for each in trainer.messages(240) if isinstance(each, TrainerEpoch)]
    finally:
        await trainer.end()


if __name__ == "__main__":
    own = Path(sys.argv[1])
    os.environ[AGENT] = str(own / "agent")
    sys.stdout.write(json.dumps([asyncio.run(train(own, sys.argv[2], int(sys.argv[3]))), bytes_sent()]) + "\n")
