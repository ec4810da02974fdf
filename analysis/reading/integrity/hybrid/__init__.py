"""Exchanges of hybrid trainings with their parameter servers, against the trainings."""
