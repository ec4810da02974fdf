"""Keras on PyTorch. Importing this package chooses Keras's backend."""

import os

os.environ["KERAS_BACKEND"] = "torch"
# Without these MIOpen (AMD) transposes all images to channels-first and back.
os.environ.setdefault("PYTORCH_MIOPEN_SUGGEST_NHWC", "1")
os.environ.setdefault("PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM", "1")
