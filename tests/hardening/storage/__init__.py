"""Runs whose storage refuses, at every place and for a while."""
