"""Augmentation of a batch on its own device, where every sample has its own draws.

    augment = AugmentPipeline(("crop", "flip"), seed=0, size=(32, 32), mixup=0.8, cutmix=1.0)
    images, targets = augment(images, labels, index, epoch=3, classes=100)

Images are uint8 (B C H W) or volumes (B C D H W), and come back as float32 in [0, 1]; targets are soft, (B classes).
A sample's numbers are a hash of (seed, epoch, index): they do not depend on the batch, on the position in it, or on which
other operations there are. So a batch in one piece and in several gives the same samples, bit for bit on one device;
mixup and cutmix mix neighbours 2i and 2i + 1, so pieces must be of even length.

Operations, by name, in the order in which they are applied, whatever the order in which they are named:

    crop           pad every side, by zeros or by reflection, then cut out `size` at a random place
    resized-crop   cut out a box of random area and shape, and resize it to `size`; not together with crop
    flip           mirror the last axis, or those that `mirrored` has, each for half of the samples
    turn           rotate by 0 to 3 quarter turns, volumes about the axis `upright`
    rand-augment   `count` operations of one magnitude, each drawn from fourteen (RandAugment)
    three-augment  one of grayscale, solarise and Gaussian blur (DeiT-III)
    jitter         brightness, contrast and saturation, in this order, each by a random factor

and after them mixup or cutmix. Volumes have crop, flip, turn, mixup and cutmix; the others are for images of 1 or 3
channels. Nothing waits for the device, and nothing loops over samples. Between operations pixels are not rounded to 256
levels.
"""
