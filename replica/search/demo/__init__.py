"""`aiperf search` and `aiperf hpo`: search and tuner on synthetic objectives."""
