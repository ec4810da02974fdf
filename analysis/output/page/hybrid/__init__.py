"""Hybrid training on the page."""
