"""Keras on TensorFlow. Importing this package chooses Keras's backend."""

import os

from aiperf.frameworks import import_lean

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import_lean("tensorflow")
