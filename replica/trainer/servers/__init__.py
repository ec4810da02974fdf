"""Parameter servers of a hybrid training: NumPy processes that keep the weights (docs/hybrid.md).

After Kurth et al. 2017 ("Deep Learning at 15PF") and Intel Caffe's asynchronous parameter server.
"""
