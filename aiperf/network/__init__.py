"""Networks: layers, architectures, their files, and their operation count."""
