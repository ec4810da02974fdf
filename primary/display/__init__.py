"""The live view of a run: its state, and its display on a terminal."""
