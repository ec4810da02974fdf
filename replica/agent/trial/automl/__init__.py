"""Trials of AutoML: planned by the search, warmed up while the one before trains."""
