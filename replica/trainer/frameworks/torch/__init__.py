"""Keras on PyTorch. Importing this package chooses Keras's backend."""

import os

from aiperf.host import this_host
from aiperf.machine.vendors.kfd import are_fast_channels_last

os.environ["KERAS_BACKEND"] = "torch"
if are_fast_channels_last(this_host().root):
    # Without these MIOpen (AMD) transposes all images to channels-first and back.
    os.environ.setdefault("PYTORCH_MIOPEN_SUGGEST_NHWC", "1")
    os.environ.setdefault("PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM", "1")
