"""Collectives: how the ranks of one training exchange data."""
