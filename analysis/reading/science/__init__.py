"""Records of scientific workloads: the cost of their images, and their quality."""
