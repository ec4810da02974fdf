"""Weak scaling: one configuration run with more and more replicas."""
