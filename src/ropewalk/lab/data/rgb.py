"""Images of files in three colours of 8 bits.

Grey becomes equal colours, palettes become theirs, and transparent pixels lose their transparency. Images are not turned by
what cameras note about them. Those of one number a pixel with more than 8 bits, as depths and scans have, are refused: which
of their values are black and white is not known.
"""

from pathlib import Path

from PIL import Image

DEEP = ("I", "F")
"""How the modes of such images begin: of whole numbers, and of fractions."""


def lazy(path: str | Path) -> Image.Image:
    """The image of a file, of which no pixel is read yet."""
    image = Image.open(path)
    if image.mode.startswith(DEEP):
        image.close()
        raise ValueError(f"it must have 8 bits a colour, with black as 0 and white as 255, got the mode {image.mode}")
    return image


def rgb(path: str | Path) -> Image.Image:
    """The image of a file, in colours."""
    with lazy(path) as image:
        return image.convert("RGB")
