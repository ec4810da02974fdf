"""Hybrid training: synchronous inside a group of ranks, asynchronous between groups."""
