"""Runs as another user of the node sees them."""
