"""The verbs of rehearsals."""
