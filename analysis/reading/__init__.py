"""A run's raw records, read and folded, once for all reports."""
