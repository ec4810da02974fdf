"""Speed of the micro suite."""
