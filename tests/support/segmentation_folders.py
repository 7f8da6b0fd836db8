"""Folders of small images and maps, for tests."""

import numpy as np
from PIL import Image

COLOURS = np.array([[40, 40, 40], [220, 60, 60], [60, 60, 220]], dtype=np.uint8)


def scene(draw, rows, columns):
    """An image of dark ground with a red and a blue box, noisy, and its map; its first row is not known."""
    map = np.zeros((rows, columns), dtype=np.uint8)
    for number in (1, 2):
        top, left = draw.integers(0, rows // 2), draw.integers(0, columns // 2)
        map[top : top + rows // 2, left : left + columns // 3] = number
    noise = draw.integers(-20, 20, (rows, columns, 3))
    image = np.clip(COLOURS[map].astype(int) + noise, 0, 255).astype(np.uint8)
    map[0] = 255
    return image, map


def folder(path, counts, *, seed=0, sizes=((37, 53), (64, 41), (40, 40))):
    """A plain folder of scenes, as many of each part, of several sizes."""
    draw = np.random.default_rng(seed)
    for part, count in counts.items():
        for kind in ("images", "maps"):
            (path / kind / part).mkdir(parents=True)
        for i in range(count):
            image, map = scene(draw, *sizes[i % len(sizes)])
            save(path / "images" / part / f"{i:02}.jpg", image)
            save(path / "maps" / part / f"{i:02}.png", map)
    return path


def save(path, array, palette=False):
    """An image of an array, with a palette if it is asked for."""
    image = Image.fromarray(array)
    if palette:
        image.putpalette([value for number in range(256) for value in (number, 255 - number, 7)])
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=95) if path.suffix == ".jpg" else image.save(path)
