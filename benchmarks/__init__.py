"""Performance measured as ratios, side by side in one run; never asserted in tests."""
