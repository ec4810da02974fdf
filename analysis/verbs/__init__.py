"""The verbs that read runs and results, and their options."""
