"""Settings of a run: sections, presets, the space of hyperparameters, data sets, placement."""
