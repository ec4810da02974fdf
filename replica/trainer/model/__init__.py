"""Keras models from architectures, and the weights that they inherit."""
