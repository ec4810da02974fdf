"""Keras on PyTorch. Importing this package chooses Keras's backend."""

import os

os.environ["KERAS_BACKEND"] = "torch"
