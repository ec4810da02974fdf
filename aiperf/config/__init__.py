"""Settings of a run: sections and presets, the search space of hyperparameters, data sets and placement."""
