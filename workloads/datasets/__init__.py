"""Tools that make and check directories of images: `aiperf dataset prepare|check|synthesize`."""
