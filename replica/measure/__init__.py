"""What a device can do, where the time of a step goes, and what a network needs."""
