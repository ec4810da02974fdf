"""The cluster during the run: replicas that held it back, and accelerator hours by cause."""
