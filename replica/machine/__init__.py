"""The replica's node: what it has, its accelerators, and samples of their load."""
