"""Keras on TensorFlow. Importing this package chooses Keras's backend."""

import os

from aiperf.frameworks import import_lean

os.environ["KERAS_BACKEND"] = "tensorflow"
# Errors alone: the notes and warnings of every rank of every trial would fill the logs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import_lean("tensorflow")
