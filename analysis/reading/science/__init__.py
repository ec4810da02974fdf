"""What the records of scientific workloads say: the cost of their images, and their quality."""
