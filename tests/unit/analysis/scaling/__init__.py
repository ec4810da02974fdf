"""Series of runs of growing size."""
