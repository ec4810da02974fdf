"""The input pipeline of frameworks without tf.data: libjpeg-turbo, NumPy, and threads."""
