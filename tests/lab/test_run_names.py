"""Run names are the same as those of commit f10efa0, so that runs made before are found, resumed and compared.

Every row is a change of the default settings or of a recipe, with the name that the code at that commit gave it. New
settings must not change any of them: give them `hashed="if set"` and the default None.
"""

import pytest

from ropewalk.lab.config import Config
from ropewalk.lab.recipes import RECIPES

NAMES = [
    (None, {}, "mixed-seed0-3456349d4d"),
    ("digits", {}, "mixed-seed0-268bb84e77"),
    ("cifar100-tiny", {}, "mixed-seed0-72753fd11a"),
    ("cifar100-small", {}, "mixed-seed0-f8c01c9fbe"),
    ("van-de-geijn-cifar", {}, "mixed-seed0-21fa64a963"),
    ("van-de-geijn", {}, "mixed-seed0-47f9066efe"),
    ("deit-iii", {}, "mixed-seed0-357c6c00d0"),
    ("liere", {}, "mixed-seed0-59bf9f1acb"),
    ("comrope", {}, "mixed-seed0-f88039c299"),
    ("penn-fudan", {}, "mixed-seed0-df1af39a08"),
    ("penn-fudan-maps", {}, "mixed-seed0-2bf0e4cbff"),
    ("modelnet10", {}, "mixed-seed0-f0d8e537b7"),
    ("modelnet10-half", {}, "mixed-seed0-b28ead8c86"),
    ("books", {}, "rope-seed0-1347849976"),
    (None, {"encoding": "liere", "options": {"block": 4, "learned": True}, "seed": 3}, "liere-seed3-92a63d5c80"),
    ("digits", {"root": "elsewhere", "workers": 7, "checkpoint": 0.0}, "mixed-seed0-268bb84e77"),
    (
        "digits",
        {"encoding": "chain", "options": {"parts": [{"name": "mixed"}, {"name": "learned-ape"}]}},
        "chain-seed0-7a192b017c",
    ),
    ("digits", {"start": "runs/mixed-seed{seed}-0123456789"}, "mixed-seed0-a97e1cf9ec"),
    ("digits", {"start": "/elsewhere/mixed-seed{seed}-0123456789"}, "mixed-seed0-a97e1cf9ec"),
    ("digits", {"span": None, "clip": None, "ema": 0.99, "epochs": 3}, "mixed-seed0-ab4d1df621"),
    ("digits", {"size": [8, 8], "patch": [2, 2]}, "mixed-seed0-73dab61ba3"),
    ("digits", {"size": [16, 32, 32], "patch": [2, 16, 16]}, "mixed-seed0-addf7948b1"),
    ("digits", {"warmup": 2, "learning_rate": 1}, "mixed-seed0-d3e561c50b"),
    (
        "cifar100-tiny",
        {"model": "timm:vit_small_patch16_224", "perturb": 0.5, "shift": 1.0, "rescale": 1.5, "per_sample": True},
        "mixed-seed0-186abddf0b",
    ),
    ("van-de-geijn-cifar", {"registers": 4, "strength": {"count": 2}, "size": [32, 32]}, "mixed-seed0-9279be93d1"),
    ("penn-fudan", {"task": "masks", "every": 3}, "mixed-seed0-dee730e08a"),
    ("penn-fudan-maps", {"head": "linear"}, "mixed-seed0-2bf0e4cbff"),
    ("penn-fudan-maps", {"head": "pyramid"}, "mixed-seed0-1e77e66c94"),
    ("modelnet10", {"augment": [], "strength": {}}, "mixed-seed0-fe867fbc0c"),
    ("books", {"keys": None, "kv_heads": 2, "length": 256}, "rope-seed0-a47db7d17d"),
    (
        "books",
        {
            "encoding": "rope",
            "options": {"base": 500000.0},
            "seed": 2,
            "optimiser": "lamb",
            "precision": "float32",
            "compile": False,
        },
        "rope-seed2-4110e8eef8",
    ),
]


@pytest.mark.parametrize(("recipe", "settings", "name"), NAMES)
def test_run_names_have_not_changed(recipe, settings, name):
    base = Config() if recipe is None else RECIPES[recipe]
    assert Config.of(base.document() | settings).name == name
