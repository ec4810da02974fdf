"""Keras on JAX. Importing this package chooses Keras's backend."""

import os

MEMORY = "XLA_CLIENT_MEM_FRACTION"
MOST_MEMORY = "0.95"
"""JAX's own is three quarters: less than the search plans with (`search_space.limits`)."""

os.environ["KERAS_BACKEND"] = "jax"
# Another process may be training on the accelerator: take only the memory that is used.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:  # its earlier name; XLA refuses both
    os.environ.setdefault(MEMORY, MOST_MEMORY)
