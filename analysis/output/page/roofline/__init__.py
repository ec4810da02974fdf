"""The page's view of the micro suite."""
