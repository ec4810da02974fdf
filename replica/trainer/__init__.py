"""Training one architecture: model, input pipeline, rank program and the starters of ranks."""
