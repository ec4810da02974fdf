"""A second count of a run's operations, from raw lines, without the report's code."""

import base64
import json
import zlib
from collections import defaultdict
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture
from aiperf.network.operations import Operations, count
from aiperf.network.science import SCIENCE_1

Line = tuple[int, dict[str, Any]]
"""Milliseconds on the primary's clock, and what the record says."""


def operations_total(output: Path) -> int:
    """Images trained and evaluated within the run, times the cost of their architectures."""
    lines = read_lines(output)
    by_type: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_type[line[1]["type"]].append(line)
    if not by_type["run_released"]:
        return 0
    start_ms, end_ms = by_type["run_released"][-1][0], end_of(lines, by_type)
    total = 0
    for began_ms, started in [*by_type["trial_started"], *by_type["workload_started"]]:
        own = [(ms, data) for ms, data in lines if data.get("trial") == started["trial"] and ms <= end_ms]
        cost = cost_of(output, started)
        epochs = [data for ms, data in own if data["type"] == "epoch" and ms >= start_ms]
        total += sum(price(cost, data) for data in epochs)
        if not died(began_ms, started, by_type, end_ms):
            total += open_epoch(cost, own, start_ms)
    return total


def cost_of(output: Path, started: dict[str, Any]) -> Operations:
    """The operations of an image of a training, from the files of its networks."""
    if started["type"] == "trial_started":
        return count(network(output, started["architecture"])).operations

    def of_passes(passes: list[dict[str, Any]]) -> int:
        counts = [count(network(output, started["networks"][each["network"]]), SCIENCE_1) for each in passes]
        return sum(
            each["forward"] * counted.operations.forward
            + each["backward"] * counted.operations.backward
            + each["input_gradient"] * counted.input_gradient
            for each, counted in zip(passes, counts, strict=True)
        )

    evaluated = of_passes(started["evaluation_passes"]) + int(started["further_evaluation"])
    trained = of_passes(started["training_passes"]) + int(started["further_training"])
    return Operations(evaluated, trained - evaluated)


def network(output: Path, name: str) -> Architecture:
    return read_architecture(output / "models" / name / "architecture.json")


def end_of(lines: list[Line], by_type: dict[str, list[Line]]) -> int:
    """The recorded end. Without one, the last record, or the deadline if that was before."""
    if ended(by_type):
        return int(by_type["run_ended"][-1][1]["end_ms"])
    released_ms, released = by_type["run_released"][-1]
    return min(lines[-1][0], released_ms + int(released["duration_ms"]))


def ended(by_type: dict[str, list[Line]]) -> bool:
    """True if the run was not resumed after its last end."""
    ends, resumed = by_type["run_ended"], by_type["run_resumed"]
    return bool(ends) and (not resumed or resumed[-1][0] < ends[-1][0])


def price(cost: Operations, data: dict[str, Any]) -> int:
    return int(data["images_trained"] * cost.total + data["images_evaluated"] * cost.forward)


def open_epoch(cost: Operations, own: list[Line], start_ms: int) -> int:
    """The last report of the epoch that was not completed by the end."""
    complete = {data["epoch"] for _, data in own if data["type"] == "epoch"}
    reports = [data for ms, data in own if data["type"] == "progress" and ms >= start_ms]
    return max((price(cost, data) for data in reports if data["epoch"] not in complete), default=0)


def died(began_ms: int, started: dict[str, Any], by_type: dict[str, list[Line]], end_ms: int) -> bool:
    """True if a trial failed, or was lost with its replica or its primary, before the end."""
    trial = started["trial"]
    if any(data["trial"] == trial and ms <= end_ms for ms, data in by_type["trial_failed"]):
        return True
    ends = [data["reason"] for _, data in by_type["trial_ended"] if data["trial"] == trial]
    if any(reason != "stopped" for reason in ends):
        return False
    if any(began_ms <= ms <= end_ms for ms, _ in by_type["run_resumed"]):
        return True
    losses = [ms for ms, data in by_type["replica_lost"] if data["replica"] == started["replica"]]
    reports = (line for kind in ("phase", "progress", "epoch") for line in by_type[kind])
    silent = ended(by_type) and not any(ms >= end_ms and data["trial"] == trial for ms, data in reports)
    return not ends and (silent or any(began_ms <= ms <= end_ms for ms in losses))


def last_that_counts(raw: list[dict[str, Any]], writer: str) -> float:
    """The last record of a writer that a later primary had read when it resumed; else no limit."""
    primaries = [r["writer"] for r in raw if r["data"]["type"] == "replica_ready" and r["data"]["writer"] == writer]
    owner = int((primaries[0] if primaries else writer).rpartition("-")[2])
    limit = float("inf")
    for r in raw:
        number = int(r["writer"].rpartition("-")[2])
        if r["data"]["type"] == "run_resumed" and r["data"].get("until") is not None and number > owner:
            limit = min(limit, places(r["data"]["until"]).get(writer, -1))
    return limit


@cache
def places(text: str) -> dict[str, int]:
    """The last record of each writer, from a cursor."""
    if text.startswith("z"):
        text = zlib.decompress(base64.b64decode(text[1:])).decode()
    return {word.rpartition(":")[0]: int(word.rpartition(":")[2]) for word in text.split()}


def read_lines(output: Path) -> list[Line]:
    """All whole lines, in the order of the primary's clock."""
    raw = [
        json.loads(line)
        for file in sorted((output / "history").glob("*.jsonl"))
        for line in file.read_text().splitlines()
        if line.endswith('"}')
    ]
    last = {writer: last_that_counts(raw, writer) for writer in {r["writer"] for r in raw}}
    raw = [r for r in raw if r["sequence"] <= last[r["writer"]]]
    offsets = {r["data"]["writer"]: r["data"]["clock_offset_ms"] for r in raw if r["data"]["type"] == "replica_ready"}

    def moment(r: dict[str, Any]) -> int:
        return round(datetime.fromisoformat(r["time"]).timestamp() * 1000) - int(offsets.get(r["writer"], 0))

    # A replica that works on after its trial was closed as lost does so for nothing.
    lost: dict[str, int] = {}
    end_ms = {r["writer"]: r["data"]["end_ms"] for r in raw if r["data"]["type"] == "run_ended"}
    for r in raw:
        closed = r["data"]["type"] == "trial_closed" and r["data"]["how"] == "lost"
        if closed and moment(r) < end_ms.get(r["writer"], float("inf")):
            writer = r["data"]["writer"]
            lost[writer] = min(moment(r), lost.get(writer, moment(r)))
    lines = [
        (moment(r), r["data"])
        for r in raw
        if r["writer"] not in lost or last[r["writer"]] < float("inf") or moment(r) <= lost[r["writer"]] + TOLERANCE_MS
    ]
    return sorted(lines, key=lambda line: line[0])


TOLERANCE_MS = 10_000
"""How far the corrected clocks of replicas and primary may differ."""
