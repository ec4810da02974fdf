"""The report of one run, computed from what was read."""
