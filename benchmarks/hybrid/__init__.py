"""Hybrid training against synchronous training: to a quality, and with a slow rank."""
