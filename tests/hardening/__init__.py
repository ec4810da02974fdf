"""Faults that a machine, its clocks and its file systems cause, and input that means harm."""
