"""Settings of papers by name, and our own. Where a paper contradicts itself, the recipe names the version it follows.

digits              scikit-learn's digits, in seconds a run on two CPU cores; for demonstration.
cifar100-tiny       Ours, for many runs: 12 layers, 4 heads of 48, 50 epochs, bfloat16.
cifar100-small      The same with 8 heads. In these three all encodings have one span, below the full rotation at which
                    uniform RoPE encodes the first and the last patch alike; in those of papers each has its own.
van-de-geijn-cifar  CIFAR-100 of arXiv 2511.08368. Text and Table 6 differ: patches of 4 (16 is half an image of 32 px),
                    batch 1,024 and a learning rate of 4e-3 as in the table (the text has 256 and no rate).
van-de-geijn        ImageNet of the same paper: batch 512 and 4e-3 as in Table 5 (the text has 256 and 3e-3). The code's
                    head width of 63 for spherical RoPE is not reproduced: all encodings have 48 here.
deit-iii            ViT-S of DeiT-III as Heo et al. use it, with the mixup and CutMix that its code has by default (both
                    classes of a mixture are targets), without repeated augmentation.
liere               ViT-B of LieRE on CIFAR-100. Its tables have 3,096 hidden channels, its code 3,072: as in the code.
comrope             ViT-B/16 of ComRoPE's Table 5: resized crops only. Its class token has the position of the center and is
                    rotated; here patches are averaged.
penn-fudan          Ours, for boxes and segmentation masks of pedestrians: 12 layers, 4 heads of 48, views of 320 px.
penn-fudan-maps     Ours, for the class of each pixel: the same layers, heads, views and span.
modelnet10          Ours, for volumes: occupancy grids of 30³ (data/modelnet10.npz), patches of 3³, 1,000 tokens. The last
                    axis points up: volumes are mirrored along the others and rotated about it.
modelnet10-half     The same at 15³, 125 tokens: a cell is the occupied share of 2³ voxels. For fine-tuning on finer grids.
books               Ours, for text: bytes of a folder with train.txt and val.txt, windows of 512, 6 layers, 6 heads of 64.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ropewalk.lab.config import PER_RUN_FIELDS, SETTINGS, Config
from ropewalk.lab.encoding_spec import parse_options
from ropewalk.lab.errors import CommandError, translate_value_errors
from ropewalk.validation import check_choice

_SPAN = 6.0

_CIFAR = Config(
    data="cifar100",
    span=_SPAN,
    patch=4,
    width=192,
    depth=12,
    heads=4,
    epochs=50,
    batch=1024,
    learning_rate=2e-3,
    weight_decay=0.05,
    warmup=5.0,
    augment=("flip", "crop"),
    smoothing=0.1,
    precision="bfloat16",
    compile=True,
)

_GEIJN = replace(
    _CIFAR,
    span=None,
    width=720,
    heads=12,
    epochs=400,
    optimiser="lamb",
    learning_rate=4e-3,
    pool="class",
    layer_scale=1e-4,
    drop_path=0.1,
    dropout=0.1,
    smoothing=0.0,
    augment=("resized-crop", "flip", "three-augment", "jitter"),
    mixup=0.8,
    cutmix=1.0,
)

_VOLUMES = Config(
    data="data/modelnet10.npz",
    size=(30, 30, 30),
    span=_SPAN,
    patch=3,
    width=192,
    depth=6,
    heads=4,
    epochs=60,
    batch=64,
    learning_rate=1e-3,
    augment=("flip", "turn", "crop"),
    strength={"mirrored": [0, 1], "upright": 2, "pad": 2},
    smoothing=0.1,
    precision="bfloat16",
    compile=True,
    workers=0,
)

_PEDESTRIANS = Config(
    task="detect",
    data="data/pennfudan",
    span=_SPAN,
    size=(320, 320),
    patch=16,
    width=192,
    depth=12,
    heads=4,
    epochs=60,
    batch=4,
    learning_rate=3e-4,
    weight_decay=0.05,
    warmup=5.0,
    drop_path=0.1,
    augment=("flip", "crop"),
    precision="bfloat16",
    compile=True,
    every=5,
)

RECIPES: dict[str, Config] = {
    "digits": Config(
        data="digits",
        span=_SPAN,
        patch=2,
        width=48,
        depth=2,
        heads=2,
        ratio=2.0,
        epochs=20,
        batch=64,
        learning_rate=4e-3,
        warmup=2.0,
        augment=(),
        workers=0,
    ),
    "cifar100-tiny": _CIFAR,
    "cifar100-small": replace(_CIFAR, width=384, heads=8),
    "van-de-geijn-cifar": _GEIJN,
    "van-de-geijn": replace(
        _GEIJN,
        data="data/imagenet",
        size=(224, 224),
        patch=16,
        width=384,
        heads=8,
        epochs=200,
        batch=512,
        layer_scale=1.0,
        drop_path=0.0,
        dropout=0.0,
        mixup=0.0,
        cutmix=0.0,
    ),
    "deit-iii": Config(
        data="data/imagenet",
        size=(224, 224),
        patch=16,
        width=384,
        heads=6,
        pool="class",
        layer_scale=1e-4,
        epochs=400,
        batch=2048,
        optimiser="lamb",
        learning_rate=4e-3,
        weight_decay=0.03,
        loss="binary",
        augment=("resized-crop", "flip", "three-augment", "jitter"),
        mixup=0.8,
        cutmix=1.0,
        precision="bfloat16",
        compile=True,
    ),
    "liere": replace(
        _CIFAR,
        span=None,
        width=768,
        heads=12,
        pool="class",
        dropout=0.1,
        epochs=200,
        batch=512,
        learning_rate=1e-4,
        weight_decay=0.0,
        warmup=0.0,
        smoothing=0.0,
        augment=("flip", "crop", "rand-augment"),
        strength={"count": 2, "magnitude": 14.0},
    ),
    "comrope": Config(
        data="data/imagenet",
        size=(224, 224),
        patch=16,
        width=768,
        heads=12,
        epochs=200,
        batch=6144,
        learning_rate=1e-3,
        weight_decay=0.01,
        warmup=4.0,
        augment=("resized-crop",),
        perturb=1.0,
        precision="bfloat16",
        compile=True,
    ),
    "penn-fudan": _PEDESTRIANS,
    "penn-fudan-maps": replace(
        _PEDESTRIANS,
        task="segment",
        batch=8,
        learning_rate=5e-4,
        drop_path=0.0,
        augment=("flip", "crop", "jitter"),
        every=1,
    ),
    "modelnet10": _VOLUMES,
    "modelnet10-half": replace(_VOLUMES, size=(15, 15, 15), strength={**_VOLUMES.strength, "pad": 1}),
    "books": Config(
        encoding="rope",
        data="data/books",
        length=512,
        keys=0.2,
        width=384,
        depth=6,
        heads=6,
        epochs=3,
        batch=64,
        learning_rate=1e-3,
        weight_decay=0.1,
        warmup=0.1,
        augment=(),
        precision="bfloat16",
        compile=True,
        workers=0,
    ),
}


def parse_settings(recipe: str, words: Sequence[str]) -> Config:
    """A recipe with the settings of `words`, each key=value; a list of one value has no comma."""
    base = RECIPES[check_choice("recipe", recipe, RECIPES, error=CommandError)].document()
    given = parse_replaced_settings(base, words)
    with translate_value_errors():
        config = Config.of(base | given)
    for name in given:
        other = SETTINGS[name].replaced_by
        if other is not None and getattr(config, other) is not None:
            raise CommandError(f"{name} has no effect with {other}={getattr(config, other)}: leave it out")
    return config


def describe_recipes() -> dict[str, str]:
    """What each recipe is, by name, as this module's docstring has it."""
    entries = re.findall(r"^([\w-]+)  +(\S.*(?:\n .*)*)", __doc__ or "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def parse_replaced_settings(base: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Parse key=value settings that replace those of a base. One number as the size counts for every axis of the base's
    size, or for two."""
    given = parse_options(words)
    for name in given:
        if name in PER_RUN_FIELDS:
            raise CommandError(f"{name} is not a setting: encodings come with their options, and seeds by --seed or --seeds")
        check_choice("setting", name, [each for each in base if each not in PER_RUN_FIELDS], error=CommandError)
    if isinstance(augment := given.get("augment"), str):
        given["augment"] = [augment] if augment else []
    if type(side := given.get("size")) is int:
        given["size"] = [side] * len(base["size"] or (side, side))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
