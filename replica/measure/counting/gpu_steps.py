"""A step that a profiler counts: `python -m replica.measure.counting.gpu_steps FILE STEP IMAGES`.

STEP is `forward` or `training`. The step is done once before, so that libraries have chosen their
algorithms, and once between the calls that start and stop a profiler. The loss is the mean of all
outputs.
"""

import os
import sys
from pathlib import Path
from typing import Any

from aiperf.frameworks import import_lean


def main() -> int:
    """Do the step twice, the second time between the marks of the profiler."""
    os.environ["KERAS_BACKEND"] = "torch"
    file, step, images = sys.argv[1:]
    import torch  # noqa: PLC0415  (may not be installed)

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    do = step_of(Path(file), step == "training", int(images))
    do()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    do()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return 0


def step_of(path: Path, trains: bool, images: int) -> Any:
    """Make a function that does one forward pass, or one step of plain gradient descent."""
    keras = import_lean("keras")
    import torch  # noqa: PLC0415

    from replica.measure.counting.keras_operations import graph_of  # noqa: PLC0415
    from replica.trainer.model.model_files import load_any  # noqa: PLC0415

    model = load_any(path)
    batch = keras.tree.map_structure(
        lambda tensor: keras.ops.zeros((images, *tensor.shape[1:]), tensor.dtype), graph_of(model).input
    )
    trained = [variable.value for variable in model.trainable_variables]

    def forward() -> None:
        with torch.no_grad():
            model(batch, training=False)

    def train() -> None:
        outputs = keras.tree.flatten(model(batch, training=True))
        gradients = torch.autograd.grad(sum(each.mean() for each in outputs), trained, allow_unused=True)
        with torch.no_grad():
            for value, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:
                    value.sub_(0.1 * gradient)

    return train if trains else forward


if __name__ == "__main__":
    sys.exit(main())
