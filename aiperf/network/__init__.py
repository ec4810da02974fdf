"""What a network is and costs: layers, architectures, their files, and the operation count."""
