"""Everything that can be known before a run: nodes examined, findings with remedies."""
