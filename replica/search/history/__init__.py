"""Evidence about a run's trials: from the primary's digest, or from the raw records."""
