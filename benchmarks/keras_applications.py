"""The count of every model of `keras.applications` next to what TensorFlow and XLA count.

python -m benchmarks.keras_applications [NAME ...] [--format json]

Each model has its smallest size and no weights from outside, once trained whole and once with all
of it frozen but its last dense layer. Models with layers that neither rule set covers are named.
XLA's programs are only lowered: nothing is compiled. All of them take about an hour on two cores.
"""

import argparse
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError, UncountedLayerError
from aiperf.network.operations import AIPERF_1, NetworkCount
from aiperf.network.science import SCIENCE_1

SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71, "NASNetLarge": 331, "NASNetMobile": 224}
"""Smallest sides of the images of models that cannot take 32 pixels."""

CLASSES = 10


@dataclass(frozen=True)
class Row:
    """One model: its counts, and what profilers say more or less; None if they cannot count it."""

    model: str
    frozen: bool
    rules: str
    forward: int | None = None
    backward: int | None = None
    tensorflow: float | None = None
    """Relative difference of the forward pass."""
    xla_forward: float | None = None
    xla_training: float | None = None
    said: str = ""
    """Layers without a rule, or the reason why there is no count."""


def rows(names: list[str]) -> Iterator[Row]:
    """Count each model, whole and frozen."""
    import keras  # noqa: PLC0415

    for name in names:
        size = SIZES.get(name, 32)
        build = getattr(keras.applications, name)
        options = (
            {"include_preprocessing": False} if "include_preprocessing" in inspect.signature(build).parameters else {}
        )
        try:
            model = build(weights=None, input_shape=(size, size, 3), classes=CLASSES, **options)
        except ValueError as error:
            yield Row(name, False, "", said=str(error))
            continue
        for frozen in (False, True):
            for layer in model.layers[:-1]:
                layer.trainable = not frozen
            yield _row(name, model, frozen)


def _row(name: str, model: Any, frozen: bool) -> Row:
    from replica.measure.counting.profilers import tensorflow_forward, xla  # noqa: PLC0415

    try:
        rules, count = _counted(model)
    except UncountedLayerError as error:
        kinds = sorted({line.partition("(")[2].rstrip(")") for line in error.layers})
        return Row(name, frozen, "", said=f"no rule: {'; '.join(kinds)}")
    whole = count.operations
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        try:
            forward, training = xla(path, lowered=True).differences(whole)
            profiled = tensorflow_forward(model) / whole.forward - 1
        except AiperfError as error:
            return Row(name, frozen, rules, whole.forward, whole.backward, said=str(error))
    return Row(name, frozen, rules, whole.forward, whole.backward, profiled, forward, training)


def _counted(model: Any) -> tuple[str, NetworkCount]:
    from replica.measure.counting.keras_operations import count_model  # noqa: PLC0415

    try:
        return AIPERF_1.name, count_model(model, AIPERF_1)
    except UncountedLayerError:
        return SCIENCE_1.name, count_model(model, SCIENCE_1)


def _line(row: Row) -> str:
    trained = "head" if row.frozen else "all"
    if row.forward is None:
        return f"| {row.model} | {trained} | {row.said} | | | | | |"
    differences = (row.tensorflow, row.xla_forward, row.xla_training)
    cells = " | ".join("-" if value is None else f"{value:+.2%}" for value in differences)
    return f"| {row.model} | {trained} | {row.rules} | {row.forward:,} | {row.backward:,} | {cells} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras  # noqa: PLC0415

    every = [name for name, build in vars(keras.applications).items() if name[0].isupper() and callable(build)]
    found = rows(arguments.names or sorted(every))
    if arguments.format == "json":
        print(json.dumps([asdict(row) for row in found], indent=2))
        return 0
    print("| model | trains | rules | forward | backward | TensorFlow, FP | XLA, FP | XLA, FP + BP |")
    print("|---|---|---|---|---|---|---|---|")
    for row in found:
        print(_line(row))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
