"""What the search keeps of every architecture of a run."""
