"""Training on TensorFlow: compiled steps, devices, and Horovod."""
