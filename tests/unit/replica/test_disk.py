"""What a run may leave on disk: the bounds of docs/performance.md, each with what keeps it."""

import asyncio
import logging
import socket
from pathlib import Path

import numpy as np
import pytest

from aiperf.machine import telemetry
from aiperf.machine.telemetry import ACTIVE, Telemetry
from aiperf.machine.vendors import nvidia
from aiperf.processes import spawn_silent
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.step_evidence import append_rows, rows_of
from aiperf.storage.logs import MOST_LOG_BYTES, QuietHandler, open_log, trim_log
from aiperf.wire.lines import encode
from aiperf.wire.messages import TrainerPhase
from replica.agent.trial.trainer_process import RankSocket, TrainerProcess
from replica.search.planner import Memory, Planner
from tests.support.hand_made import HandMadeRun, ManualClock
from tests.unit.replica.agent.trial.test_trainer_process import REQUEST
from tests.unit.replica.search.test_planner import POOL, trial

NODE_BYTES, ACCELERATOR_BYTES = 512, 1300
"""Most bytes of a telemetry sample, and of each accelerator in it."""

LARGEST = {"uuid": "GPU-01234567-89ab-cdef-0123-456789abcdef", "energy": 2**63 - 1}


class Turns:
    """An event that is set after some waits."""

    def __init__(self, turns: int) -> None:
        self.waits_s: list[float] = []
        self._turns = turns

    def wait(self, timeout: float) -> bool:
        self.waits_s.append(timeout)
        return len(self.waits_s) > self._turns


def largest(accelerators: int) -> list[dict[str, object]]:
    """Every field of every accelerator with as many digits as it can have."""
    fields = dict.fromkeys(nvidia.FIELDS, 123456.789012345)
    whole = {"uuid": LARGEST["uuid"], "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": LARGEST["energy"]}
    return [{"index": index, **fields, **whole} for index in range(accelerators)]


@pytest.mark.parametrize("accelerators", [0, 1, 8, 16])
def test_telemetry_is_one_bounded_line_an_interval(
    accelerators: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = {
        "cpu_percent": 100.0,
        "cpu_power_w": 1234.56789012345,
        "memory_used_bytes": 2**50,
        "memory_total_bytes": 2**50,
        "network_sent_bytes": 2**63,
        "network_received_bytes": 2**63,
        "disk_read_bytes": 2**63,
        "disk_written_bytes": 2**63,
    }
    active = [{"uuid": LARGEST["uuid"], **dict.fromkeys(ACTIVE.values(), 0.123)}] * accelerators
    sources = (lambda: {"accelerators": largest(accelerators)}, lambda: counters, lambda: {"dcgm": active})
    monkeypatch.setattr(telemetry, "default_sources", lambda clock: sources)
    file = tmp_path / "telemetry" / "x.jsonl"
    sampler, turns = Telemetry(file, 30.0, ManualClock(), {"writer": "replica-0000-1"}), Turns(5)
    monkeypatch.setattr(sampler, "_stop", turns)
    sampler._run()
    assert turns.waits_s == [30.0] * 6
    header, *samples = file.read_bytes().splitlines()
    assert len(header) <= NODE_BYTES
    assert len(samples) == 6
    assert max(map(len, samples)) <= NODE_BYTES + accelerators * ACCELERATOR_BYTES
    assert {"accelerators", *counters} <= set(sampler.sample())


def test_a_log_keeps_its_end(tmp_path: Path) -> None:
    log = tmp_path / "trial-000001.log"
    with open_log(log) as stream:
        stream.write(b"".join(b"warning of step %07d\n" % step for step in range(100_000)))
        stream.flush()
        assert log.stat().st_size > 2 * MOST_LOG_BYTES
        trim_log(log)
        stream.write(b"the reason\n")
    lines = log.read_bytes().splitlines()
    assert log.stat().st_size <= MOST_LOG_BYTES
    assert lines[-2:] == [b"warning of step 0099999", b"the reason"]
    left_out = int(lines[0].removeprefix(b"(").split()[0])
    assert left_out + sum(len(line) + 1 for line in lines[1:-1]) == 100_000 * len(b"warning of step 0000000\n")
    trim_log(log)
    assert log.read_bytes().splitlines() == lines
    trim_log(tmp_path / "no log")


def test_the_log_of_ranks_is_kept_small_while_they_train(tmp_path: Path) -> None:
    log = tmp_path / "trial-000001.log"

    async def scenario() -> None:
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near)
        (ranks := RankSocket(REQUEST)).accept(reader, writer)
        trainer = TrainerProcess(await spawn_silent(("sleep", "60"), log), ranks, log, several=False)
        with open_log(log) as stream:
            stream.write(b"a warning\n" * MOST_LOG_BYTES)
        reader.feed_data(encode(TrainerPhase(monotonic_ms=1, phase="train")))
        await anext(trainer.messages(3600))
        assert trainer._trimming is not None
        await trainer._trimming
        await trainer.end()
        far.close()

    asyncio.run(scenario())
    assert 0 < log.stat().st_size <= MOST_LOG_BYTES


def test_the_log_of_the_primary_is_kept_small(tmp_path: Path) -> None:
    log = logging.Logger("a run's")
    log.addHandler(handler := QuietHandler(tmp_path / "primary.log"))
    for number in range(40):
        log.warning("%05d %s", number, "x" * (MOST_LOG_BYTES // 16))
        assert (tmp_path / "primary.log").stat().st_size <= MOST_LOG_BYTES
    handler.close()
    assert (tmp_path / "primary.log").read_bytes().splitlines()[-1].startswith(b"00039 ")


def test_weights_are_those_of_the_best_trials(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"search.kept_weights": 2}).at(0).release(100)
    kept = set[str]()
    for number, architecture in enumerate(POOL[:5], start=1):
        trial(run, number, architecture, 100 * (number % 3))
        run.paths.weights(architecture.hash, number).write_bytes(b"weights")
        Planner(0, run.config, run.paths, Memory()).prune_weights()
        kept = {path.name for path in run.paths.models.glob("*/weights-*.npz")}
        assert len(kept) <= 2
    assert kept == {"weights-000002.npz", "weights-000005.npz"}


def test_evidence_has_sixteen_bytes_a_step(tmp_path: Path) -> None:
    file = RunPaths(tmp_path).evidence(1)
    for epoch in (1, 2, 3):
        append_rows(file, rows_of(epoch, np.ones(100), np.ones(100)))
    assert file.stat().st_size == 3 * 100 * 16
