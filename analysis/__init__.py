"""Results of a run after its end: everything is recomputed from the run's raw records."""
