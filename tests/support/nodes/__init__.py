"""Nodes of runs in tests."""
