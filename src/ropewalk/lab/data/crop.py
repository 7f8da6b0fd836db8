"""How large a random crop is: it knows nothing of images, so that settings can name it without torchvision."""

from typing import NamedTuple


class Crop(NamedTuple):
    """The range of a box's area over the image's, and of its width over its height."""

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
