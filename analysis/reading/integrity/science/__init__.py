"""Checks of the records of scientific workloads."""
