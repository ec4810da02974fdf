"""Keras on PyTorch. Importing this package chooses Keras's backend."""

import os

from aiperf.host import this_host
from aiperf.machine.vendors.kfd import are_fast_channels_last

os.environ["KERAS_BACKEND"] = "torch"
# With "0" MIOpen (AMD) transposes all images to channels-first and back. The default is "0" or "1",
# depending on the version of ROCm.
if (fast := are_fast_channels_last(this_host().root)) is not None:
    for name in ("PYTORCH_MIOPEN_SUGGEST_NHWC", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM"):
        os.environ.setdefault(name, str(int(fast)))
