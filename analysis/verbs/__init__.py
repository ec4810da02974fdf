"""The verbs of results and their options."""
