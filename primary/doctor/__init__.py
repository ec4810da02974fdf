"""Examination before a run: its nodes, and findings with remedies."""
