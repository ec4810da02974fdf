"""Making and checking directories of images: `aiperf dataset prepare|check|synthesize`."""
