"""After the run: everything here is recomputed from the run's raw records."""
