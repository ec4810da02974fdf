"""Trainings of tests: their requests, and a process for each framework."""
