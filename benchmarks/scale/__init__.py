"""Measurements at the scale of thousands of trials."""
