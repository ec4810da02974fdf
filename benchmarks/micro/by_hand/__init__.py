"""One convolution in a loop written by hand, for each framework: nothing of the suite is in it."""
