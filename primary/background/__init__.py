"""Runs without a terminal: one that was closed, none from the start, and how to stop them."""
