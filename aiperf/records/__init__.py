"""The records of a run: the history list, and the digest of it that the search reads."""
