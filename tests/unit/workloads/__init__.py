"""Unit tests of the workloads."""
