"""Detection by Faster R-CNN on a feature pyramid, in `keras.ops` and with fixed shapes.

Boxes are y and x of the upper left corner, then of the lower right one, in pixels.
"""
