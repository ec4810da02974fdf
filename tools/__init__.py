"""Checks and generators that work on the code itself."""
