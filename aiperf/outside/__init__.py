"""Files from other people: bounded, and refused in words."""
