"""Keras on JAX. Importing this package chooses Keras's backend."""

import os

os.environ["KERAS_BACKEND"] = "jax"
# Another process may be training on the accelerator: take only the memory that is used.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
