"""Runs of scientific workloads."""
