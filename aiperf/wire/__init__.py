"""What processes say to one another: messages, one JSON object a line."""
