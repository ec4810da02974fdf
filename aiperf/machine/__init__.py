"""The replica's node: its description, its accelerators, and samples of their load."""
