"""The live view of a run: its state, and how a terminal shows it."""
