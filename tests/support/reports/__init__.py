"""Hand-made runs whose reports are looked at."""
