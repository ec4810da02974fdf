"""Detection by cells next to a reconstruction, in `keras.ops` and with fixed shapes.

Boxes are y and x of the upper left corner, then of the lower right one, in pixels; offsets and
sizes are x and y, width and height, as in NERSC/climate-caffe.
"""
