"""Samples of a node's health in a hand-made run."""

import json
from typing import Any

from aiperf.clock import format_utc
from tests.support.hand_made import T0_MS, HandMadeRun

HOST = "n1"


def write(run: HandMadeRun, samples: dict[float, dict[str, Any]], writer: str = "replica-0000-1") -> None:
    file = run.paths.telemetry_file(f"{writer}-{HOST}")
    file.parent.mkdir(exist_ok=True)
    lines = [{"version": 1, "host": HOST, "interval_s": 10, "writer": writer}]
    lines += [{"time": format_utc(T0_MS + round(1000 * t_s)), **fields} for t_s, fields in samples.items()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def card(**values: float) -> dict[str, Any]:
    return {"accelerators": [{"uuid": "GPU-1", **{f"DCGM_FI_DEV_{name}": value for name, value in values.items()}}]}
