"""Energy of a node by its sensors against the integral of its power: gaps, clocks, resets."""

import json
from itertools import product
from math import cos, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiperf.clock import format_utc
from aiperf.run_directory.paths import RunPaths
from analysis.output.artifacts import openmetrics_text
from analysis.reading.telemetry import NodeSeries, gather_telemetry, submit_telemetry
from analysis.reading.workers import Workers
from analysis.results.comparison import measures_of, values_of
from tests.support.hand_made import T0_MS
from tests.unit.analysis.result_store.made import base

RUN_S, EVERY_S = 3600, 10
AHEAD_MS = {"replica-0000-1": 0, "replica-0001-1": -7300, "replica-0002-1": 51_000}
"""Agents, and by how much their clocks are ahead of the primary's."""

EXACT_J = 500 * RUN_S
"""The waves of its power are whole ones in the run."""


def power(t_s: float) -> float:
    return 500 + 200 * sin(2 * pi * t_s / 600)


def joules(t_s: float) -> float:
    return 500 * t_s - 200 * 600 / (2 * pi) * cos(2 * pi * t_s / 600)


CASES: dict[str, tuple[list[tuple[float, float]], list[float]]] = {
    "whole": ([], []),
    "gaps": ([(-25, 15), (1400, 1460)], []),
    "resets": ([], [713, 2222]),
    "both": ([(1400, 1430)], [1395, 2222]),
}
"""Times without samples, and resets of the counters."""

REPORTED = {"counter": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "instant": "DCGM_FI_DEV_POWER_USAGE"}


def sampled(root: Path, kind: str, case: str, agents: int) -> NodeSeries:
    """A node of which each agent has a file, with samples some milliseconds after one another."""
    paths = RunPaths(root)
    paths.telemetry.mkdir()
    for place, (writer, ahead_ms) in enumerate([*AHEAD_MS.items()][:agents]):
        lines: list[dict[str, Any]] = [{"version": 1, "host": "n0", "writer": writer}]
        gaps, resets = CASES[case]
        for number, t_s in enumerate(range(-60, RUN_S + 61, EVERY_S)):
            if any(begin < t_s < end for begin, end in gaps):
                continue
            # The sensor answers up to 4 ms after the time of the sample, some later than others.
            late_s = 0.002 * ((place + number) % 3)
            since_s = max([-1000.0, *(reset for reset in resets if reset <= t_s)])
            line: dict[str, Any] = {"time": format_utc(T0_MS + 1000 * t_s + place + ahead_ms)}
            if kind == "average":
                line["cpu_power_w"] = (joules(t_s) - joules(t_s - EVERY_S)) / EVERY_S
            else:
                counted = 1000 * (joules(t_s + late_s) - joules(since_s))
                line["accelerators"] = [{REPORTED[kind]: counted if kind == "counter" else power(t_s + late_s)}]
            lines.append(line)
        file = paths.telemetry_file(f"{writer}-n0")
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Workers(False) as workers:
        (node,) = gather_telemetry(submit_telemetry(paths, workers), AHEAD_MS).nodes
    return node


@pytest.mark.parametrize(("kind", "case", "agents"), [*product((*REPORTED, "average"), CASES, (1, 3))])
def test_the_energy_of_sensors_is_the_analytic_one(kind: str, case: str, agents: int, tmp_path: Path) -> None:
    node = sampled(tmp_path, kind, case, agents)
    span = T0_MS + np.array([0.0, 1000.0 * RUN_S])
    found = node.cpu_energy(span) if kind == "average" else node.accelerator_energy(span)
    assert found is not None
    assert found[1] - found[0] == pytest.approx(EXACT_J, rel=1e-3)


def test_every_half_of_a_wave_has_its_own_energy(tmp_path: Path) -> None:
    node = sampled(tmp_path, "average", "whole", 3)
    span = T0_MS + 1000.0 * np.array([0.0, 300.0, 600.0])
    found = node.cpu_energy(span)
    assert found is not None
    assert np.diff(found) == pytest.approx([joules(300) - joules(0), joules(600) - joules(300)], rel=1e-3)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("sensors of accelerators", "sensors of accelerators", (2.0, 3.0)),
        ("sensors of accelerators", "meters, Level 2: nodes", (2.0, None)),
        ("sensors of accelerators", "", (2.0, None)),
        ("", "", (None, None)),
    ],
)
def test_operations_per_joule_are_given_with_a_basis_alone(
    one: str, other: str, found: tuple[float | None, float | None]
) -> None:
    reports = [
        base().model_copy(
            update={"energy": base().energy.model_copy(update={"operations_per_joule": n, "basis": basis})}
        )
        for n, basis in ((2.0, one), (3.0, other))
    ]
    measures = {each.name: each for each in measures_of(*reports)}
    assert (measures["operations per joule"].first, measures["operations per joule"].second) == found
    assert values_of(reports[1])["operations per joule"] == (3.0 if other else None)
    text = openmetrics_text(reports[0])
    assert (f'basis="{one}"' in text) == ("aiperf_operations_per_joule" in text) == bool(one)
