"""Settings of the training process: threads, devices, precision. To be made before the first tensor."""

from __future__ import annotations

import keras
import tensorflow as tf

from aiperf.messages import TrainRequest


def configure(request: TrainRequest) -> None:
    """Set threads, let GPU memory grow as needed, and choose the arithmetic of the layers."""
    tf.config.threading.set_intra_op_parallelism_threads(request.cpu_threads)
    tf.config.threading.set_inter_op_parallelism_threads(request.cpu_threads)
    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    keras.mixed_precision.set_global_policy(request.precision)
