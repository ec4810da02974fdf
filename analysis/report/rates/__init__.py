"""The rates of a run: the pace of its epochs, and its best and mean operations per second."""
