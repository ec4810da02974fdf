"""What counting the training images that are right costs a step: with it and without, in turns.

    python -m benchmarks.trainings.counting --framework torch [--depth 50] [--batch 32] [--turns 60]

prints one JSON object. `ratio` is that of the least processor seconds of a step that counts to the
least of one that does not, of ResNet on images like the digits: other work on the machine only adds
to them. `same` is true if both trained the same bits. `count_ms` are the processor milliseconds of
the count alone, operation by operation, as PyTorch does it.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.frameworks import FRAMEWORKS
from search_space.resnet import resnet
from workloads.classification import CLASSIFICATION

SIDE, CLASSES = 32, 10
COUNTS = 300


def main() -> None:
    """Print the object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--framework", choices=list(FRAMEWORKS), required=True)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--turns", type=int, default=60)
    given = parser.parse_args()
    framework = FRAMEWORKS.load(given.framework)()
    framework.configure(1, 0)
    rng = np.random.default_rng(1)
    images = rng.normal(size=(given.batch, SIDE, SIDE, 3)).astype(np.float32)
    batch = images, np.eye(CLASSES, dtype=np.float32)[rng.integers(CLASSES, size=given.batch)]
    candidates = {name: _steps(framework, given, batch, name == "with") for name in ("with", "without")}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    rows: dict[str, list[Any]] = {name: [] for name in candidates}
    for turn in range(given.turns):
        # Each comes first in every other turn.
        for name in sorted(candidates, reverse=bool(turn % 2)):
            began = time.process_time()
            rows[name].append(candidates[name].read([candidates[name].train(*batch)]))
            seconds[name].append(time.process_time() - began)
    same = all(np.array_equal(*pair) for pair in zip(rows["with"], rows["without"], strict=True))
    least = {name: min(own) for name, own in seconds.items()}
    figures = {
        "ratio": round(least["with"] / least["without"], 4),
        "step_ms": round(1000 * least["without"], 2),
        "count_ms": round(_count_ms(batch[1]), 3),
    }
    print(json.dumps({"framework": framework.name(), **figures, "same": same}))


def _count_ms(labels: Any) -> float:
    from keras import ops  # noqa: PLC0415  (behind the framework)

    from replica.trainer.model.correct import CorrectImages  # noqa: PLC0415

    counter, given = CorrectImages(), ops.convert_to_tensor(labels)
    began = time.process_time()
    for _ in range(COUNTS):
        counter.add(given, given)
    return 1000 * (time.process_time() - began) / COUNTS


def _steps(framework: Any, given: argparse.Namespace, batch: tuple[Any, Any], counts: bool) -> Any:
    from replica.trainer.model import builder  # noqa: PLC0415  (loads Keras, behind the framework)
    from replica.trainer.model.optimisers import build_optimiser  # noqa: PLC0415
    from tests.support.trainings.requests import request_for  # noqa: PLC0415

    builder.set_up("float32", 1)
    model = builder.build_model(resnet(given.depth, SIDE, CLASSES))
    request = request_for("digits", batch_size=given.batch, learning_rate=0.001)
    with _counting(counts):
        steps = framework.compile(model, build_optimiser(model, request), CLASSIFICATION, AloneCollective(), request)
        # Graphs and programs are made here; PyTorch's steps have none.
        steps.prepare(lambda images: (batch[0][:images], batch[1][:images]), (given.batch,))
        steps.train(*batch)
    if not counts and given.framework == "torch":
        steps._correct = None
    return steps


@contextmanager
def _counting(wanted: bool) -> Iterator[None]:
    from replica.trainer.model.correct import CorrectImages  # noqa: PLC0415

    own = CorrectImages.add
    if not wanted:
        CorrectImages.add = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        CorrectImages.add = own  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
