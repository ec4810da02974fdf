"""What tasks learn, and what several ranks make of them."""
