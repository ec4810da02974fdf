"""Campaigns with planted faults that a measurement must name."""
