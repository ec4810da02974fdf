"""Settings of the training process: threads and devices. To be made before the first tensor."""

from __future__ import annotations

import tensorflow as tf


def configure(cpu_threads: int, local_rank: int) -> None:
    """Set threads; where there are GPUs, take this rank's own and let its memory grow as needed."""
    tf.config.threading.set_intra_op_parallelism_threads(cpu_threads)
    tf.config.threading.set_inter_op_parallelism_threads(cpu_threads)
    devices = tf.config.list_physical_devices("GPU")
    if devices:
        own = devices[local_rank % len(devices)]
        tf.config.set_visible_devices(own, "GPU")
        # Beside this process there may be the one that trains now: take only what is used.
        tf.config.experimental.set_memory_growth(own, True)
