"""What people see, measured in a real browser."""
