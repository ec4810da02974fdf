"""Digests against the raw records that they are made of."""
