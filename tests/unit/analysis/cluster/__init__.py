"""Tests of what a report says about the cluster."""
