"""Whole runs in one process and in virtual time; only the trainings are modelled."""
