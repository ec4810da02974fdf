"""Audit: parts of a submitted run's work, drawn after its submission, done again and compared."""
