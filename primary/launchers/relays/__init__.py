"""Replicas behind a scheduler's remote starter, each with a relay on its node."""
