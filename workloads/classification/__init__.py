"""Image classification, the workload of the AIPerf paper."""
