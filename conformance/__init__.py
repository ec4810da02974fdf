"""Conformance kit: cases that every implementation of the specification answers alike."""
