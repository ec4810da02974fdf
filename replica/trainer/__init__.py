"""The training of one architecture: the rank program and its parts."""
