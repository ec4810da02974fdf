"""The score of a run from docs/specification.md alone: nothing of this project is imported."""

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

ZERO = ("input", "dropout", "concat", "flatten", "zeropad")


def count(file: Path) -> tuple[int, int]:
    """Operations forward and backward of one image (section 5)."""
    shapes: dict[str, list[int]] = {}
    is_image: dict[str, bool] = {}
    forward = backward = 0
    for n in json.loads(file.read_text())["nodes"]:
        kind, inputs = n["kind"], [shapes[name] for name in n["inputs"]]
        out, image = list(inputs[0]) if inputs else [], all(is_image[name] for name in n["inputs"])
        f = b = 0
        if kind == "input":
            out = [n["height"], n["width"], n["channels"]]
        elif kind == "zeropad":
            out = [out[0] + sum(n["vertical"]), out[1] + sum(n["horizontal"]), out[2]]
        elif kind == "concat":
            out = [*out[:-1], sum(shape[-1] for shape in inputs)]
        elif kind in ("conv", "maxpool"):
            window, dilation = n.get("kernel") or n["window"], n.get("dilation", [1, 1])
            reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
            same = n["padding"] == "same"
            sides = [-(-o // s) if same else (o - r) // s + 1 for o, s, r in zip(out, n["stride"], reach, strict=False)]
            weights = math.prod(window) * out[2] // n.get("groups", 1) * n.get("filters", 1)
            out = [*sides, n.get("filters", out[2])]
            f = 2 * weights * math.prod(sides) if kind == "conv" else math.prod(window) * math.prod(out)
            b = (f if image else 2 * f) + 2 * weights if kind == "conv" else 0
        elif kind == "flatten":
            out = [math.prod(out)]
        elif kind == "dense":
            f, b = 2 * out[0] * n["units"], 4 * out[0] * n["units"] + 2 * (out[0] + 1) * n["units"]
            out = [n["units"]]
        elif kind == "globalpool":
            f, out = math.prod(out) + 4 * out[2], [out[2]]
        elif kind not in ZERO:
            f = {"batchnorm": 7, "relu": 1, "add": len(inputs) - 1, "softmax": 13}[kind] * math.prod(out)
            b = 36 if kind == "batchnorm" else 0
        shapes[n["name"]], is_image[n["name"]] = out, kind in ZERO and image
        forward, backward = forward + f, backward + b
    return forward, backward


def score(run: Path) -> tuple[int, float, float, float]:
    """Operations, error, score and regulated score at the deadline (section 9)."""
    records: list[tuple[int, dict[str, Any]]] = []
    files = [list(map(json.loads, file.read_text().splitlines())) for file in run.glob("history/*.jsonl")]
    ready = [r["data"] for file in files for r in file if r["data"]["type"] == "replica_ready"]
    offsets = {data["writer"]: data["clock_offset_ms"] for data in ready}
    for r in (r for file in files for r in file):
        time_ms = round(datetime.fromisoformat(r["time"]).timestamp() * 1000) - offsets.get(r["writer"], 0)
        records.append((time_ms, r["data"]))
    ((start, duration),) = [(t, d["duration_ms"]) for t, d in records if d["type"] == "run_released"]
    within = [d for t, d in sorted(records, key=lambda pair: pair[0]) if start <= t <= start + duration]
    operations, error = 0, 1.0
    for trial in (d for d in within if d["type"] == "trial_started"):
        forward, backward = count(run / "models" / trial["architecture"] / "architecture.json")
        own = [d for d in within if d.get("trial") == trial["trial"]]
        done = [d for d in own if d["type"] == "epoch"]
        dead = any(d["type"] == "trial_failed" for d in own)
        last = max((d["epoch"] for d in done), default=0)
        done += [d for d in own if d["type"] == "progress" and d["epoch"] > last and not dead][-1:]
        operations += sum(d["images_trained"] * (forward + backward) + d["images_evaluated"] * forward for d in done)
        accuracies = [(d["correct"], d["images_evaluated"]) for d in done if d["type"] == "epoch"]
        error = min([error, *(max((n - right) / n, 1 / (2 * n)) for right, n in accuracies)])
    return operations, error, operations * 1000 / duration, -math.log(error) * operations * 1000 / duration
