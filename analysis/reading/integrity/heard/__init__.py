"""What primaries heard of epochs, in columns."""
