"""Dense tasks: what is found in an image and where, from the maps of our ViT.

No image is padded, and none is judged beside others: positions of an image depend on its own size alone. A place of a map
covers pixels from i·stride to (i + 1)·stride, and its centre is at (i + ½)·stride: anchors, pooled boxes and outlines go by
that.
"""
