"""Hostile input, faults and load."""
