"""Settings of a run: sections and presets, the space of hyperparameters, data sets and placement."""
