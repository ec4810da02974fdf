"""Measurements of devices, of the time of a step, and of a network's operations."""
