"""What a run records: the history list, and the digest that a search needs of it."""
