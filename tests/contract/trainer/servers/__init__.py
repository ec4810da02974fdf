"""What parameter servers do with gradients."""
