"""Tests of faults, load and hostile input."""
