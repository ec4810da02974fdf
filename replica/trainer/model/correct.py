"""The number of training images that steps classify rightly, at the cost of a comparison."""

from typing import Any

import keras
from keras import ops

from replica.trainer.collectives.contract import Collective

MOST = 2**24
"""Float32 counts one by one up to here."""


class CorrectImages:
    """A counter on the device, which steps add to and the end of an epoch reads.

    It counts by the outputs that the loss is computed from: with the weights of each step, and with
    dropout and the moments of its batch. No image is evaluated for it.
    """

    def __init__(self) -> None:
        # TensorFlow keeps whole numbers on the host, for which an accelerator would wait.
        self.variable = keras.Variable(0.0, dtype="float32", trainable=False, autocast=False, name="correct_images")
        """A scalar; it belongs to no model and no checkpoint."""

    def add(self, labels: Any, outputs: Any, mask: Any = None) -> None:
        """Count the images of a batch by labels and outputs, (N, classes) each.

        `mask`, (N,), is 0 for those that do not count.
        """
        right = ops.cast(ops.equal(ops.argmax(labels, axis=-1), ops.argmax(outputs, axis=-1)), "float32")
        self.variable.assign_add(ops.sum(right if mask is None else right * mask))

    def take(self, collective: Collective) -> int | None:
        """Take the count of all ranks since the last call; None if it is too large to be exact."""
        (total,) = collective.sum_tensors([ops.convert_to_tensor(self.variable)], "correct")
        found = float(ops.convert_to_numpy(total))
        self.clear()
        return round(found) if found < MOST else None

    def clear(self) -> None:
        """Count from 0 again."""
        self.variable.assign(0.0)
