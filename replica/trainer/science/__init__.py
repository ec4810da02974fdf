"""Trainings of scientific workloads."""
