"""Detection and segmentation heads on the feature maps of our ViT.

Images are neither padded nor evaluated beside others: positions depend on the size of the image itself. Cell i of a feature
map covers the pixels from i · stride to (i + 1) · stride, with its center at (i + 1/2) · stride; anchors, pooled boxes and
masks follow this.
"""
