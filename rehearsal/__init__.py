"""Whole runs in virtual time, by the real primary and agents; trainings are modelled."""
