"""Small folders of images with things in them, painted for tests: bright boxes on dark ground."""

import json

import numpy as np
from PIL import Image

SIDES = [(40, 56), (48, 36), (33, 47)]


def paint_pedestrians(folder, count=9):
    """Penn-Fudan's form: gray levels of the ground, and one or two pedestrians, the second of which is never the first's."""
    source = np.random.default_rng(0)
    for name in ("PNGImages", "PedMasks"):
        (folder / name).mkdir(parents=True)
    for i in range(count):
        rows, columns = SIDES[i % 3]
        image = source.integers(0, 80, (rows, columns, 3), dtype=np.uint8)
        mask = np.zeros((rows, columns), dtype=np.uint8)
        for k in range(1 + i % 2):
            top, left = source.integers(2, 8), source.integers(2, 8) + k * columns // 2
            mask[top : top + 20, left : left + 9] = k + 1
            image[mask == k + 1] = (250, 200 - 90 * k, 120)
        Image.fromarray(image).save(folder / "PNGImages" / f"Ped{i:05}.png")
        Image.fromarray(mask).save(folder / "PedMasks" / f"Ped{i:05}_mask.png")
    return folder


def entry(number, image, box, kind=3, **more):
    """Something in an image: x, y, width, height, with its box as the outline."""
    x, y, w, h = box
    outline = [[x, y, x + w, y, x + w, y + h, x, y + h]]
    return {"id": number, "image_id": image, "category_id": kind, "bbox": list(box), "area": w * h, "iscrowd": 0,
            "segmentation": outline} | more  # fmt: skip


def paint_coco(folder, entries, *, kinds=((3, "cat"), (7, "dog")), train=10, test=2):
    """COCO's form: images 1 to `train`, and from 101 on, of 40 × 56 pixels, every third gray; entries by part."""
    source = np.random.default_rng(1)
    (folder / "annotations").mkdir(parents=True)
    for part, first, count in (("train", 1, train), ("val", 101, test)):
        (folder / f"{part}2017").mkdir()
        images = [{"id": first + i, "file_name": f"{first + i:06}.png", "height": 40, "width": 56} for i in range(count)]
        for i, each in enumerate(images):
            colours = Image.fromarray(source.integers(0, 256, (40, 56, 3), dtype=np.uint8))
            colours.convert("L" if i % 3 == 2 else "RGB").save(folder / f"{part}2017" / each["file_name"])
        held = {"images": images, "annotations": entries.get(part, []),
                "categories": [{"id": number, "name": name} for number, name in kinds]}  # fmt: skip
        (folder / "annotations" / f"instances_{part}2017.json").write_text(json.dumps(held))
    return folder


def paint_colours(path):
    """A file of images of one colour of three, of 16 × 24 pixels, by class."""
    source = np.random.default_rng(0)
    labels = source.integers(0, 3, 60)
    images = source.integers(0, 60, (60, 16, 24, 3), dtype=np.uint8)
    images[np.arange(60), :, :, labels] += 150
    split = {"train": slice(0, 40), "val": slice(40, 50), "test": slice(50, 60)}
    np.savez(path, **{f"{part}_images": images[rows] for part, rows in split.items()},
             **{f"{part}_labels": labels[rows, None] for part, rows in split.items()})  # fmt: skip
    return path
