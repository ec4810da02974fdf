"""Results of several runs: checked, compared, ranked, packed."""
