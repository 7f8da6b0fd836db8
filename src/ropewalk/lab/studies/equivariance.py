"""Does RoPE need to be equivariant for vision? CIFAR-100, all encodings, several seeds.

The question is that of arXiv 2511.08368, whose spherical RoPE breaks relativity along one axis and is said to lose nothing.
Its model and its recipe are taken here with 4 heads of 48 for 12 of 60, and a quarter of the epochs. All encodings have the
same weights at the start, the same data in the same order, and, but for the part that says otherwise, the same span: their
fastest channels turn by as much across the image. Papers compare under conditions that are not equal.

The recipe was chosen by `learned-ape` alone, on a tenth of the training set that was held out, before anything else ran.
"""

from dataclasses import replace
from typing import Any

from ropewalk.lab.comparing.entries import Said
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.studies.study import Part, Study

ENCODINGS: dict[str, Said] = {
    "none": "none",
    "learned-ape": "learned-ape",
    "sincos": "sincos",
    "axial": "axial",
    "learned-axial": "axial:learned=true",
    "uniform": "uniform",
    "uniform-code": "uniform:variant=van-de-geijn-code",
    "mixed": "mixed",
    "mixed-ape": ("chain", {"parts": [{"name": "mixed"}, {"name": "learned-ape"}]}),
    "golden": "golden",
    "spherical": "spherical",
    "learned-spherical": "spherical:learned=true",
    "spherical-symmetric": "spherical-symmetric:learned=true",
    "liere-3": "liere:block=3",
    "liere-8": "liere:block=8",
    "liere-48": "liere:block=48",
    "comrope-ap-8": "comrope-ap:block=8",
    "comrope-ld-2": "comrope-ld:block=2",
    "comrope-ld-4": "comrope-ld:block=4",
    "comrope-ld-8": "comrope-ld:block=8",
    "string-cayley": "string-cayley",
    "alibi": "alibi",
}
TELLING = (
    "learned-ape", "none", "axial", "learned-axial", "uniform", "mixed", "spherical", "learned-spherical",
    "spherical-symmetric", "liere-8", "comrope-ld-8", "golden",
)  # fmt: skip
SCREENED = tuple(name for name in ENCODINGS if name != "uniform-code")
"""The published code of uniform RoPE differs from its paper in nothing but the span, which all have in common here."""
FEWER = ("learned-ape", "axial", "mixed", "spherical", "uniform", "spherical-symmetric")
LONG = 100
"""Epochs of all parts but the first ones."""

_PAPER = replace(RECIPES["van-de-geijn-cifar"], width=192, heads=4, epochs=LONG, span=6.0)
_CROP: dict[str, Any] = {"augment": ("flip", "crop")}
_ADAMW: dict[str, Any] = {
    **_CROP, "dropout": 0.0, "drop_path": 0.0, "layer_scale": None, "optimiser": "adamw", "learning_rate": 2e-3
}  # fmt: skip
TRIED: dict[str, dict[str, Any]] = {
    "paper": {},
    "paper-crop": _CROP,
    "adamw": _ADAMW,
    "adamw-drop-path": {**_ADAMW, "drop_path": 0.1},
    "adamw-mean": {**_ADAMW, "pool": "mean"},
}
"""Recipes that were tried: the paper's; with plain crops; without what slows a short training down; with the mean of patches
in the place of a class token."""
BASE = replace(_PAPER, **TRIED["adamw-mean"])


def _tried(about: str, settings: dict[str, Any]) -> Part:
    return Part(about, ("learned-ape",), settings=settings | {"epochs": 60}, probed=False)


def _fewer(about: str, parts: int) -> Part:
    """One of so many parts of the data, with as many times the epochs, also of warm-up and between two validations.

    Steps are about as many: of the last batch of an epoch, which is not full, nothing is trained on.
    """
    settings = {"fraction": 1 / parts, "epochs": parts * LONG, "every": parts, "warmup": parts * BASE.warmup}
    return Part(about, FEWER, seeds=(0, 1, 2), settings=settings)


EQUIVARIANCE = Study(
    name="equivariance",
    question="Does RoPE need to be equivariant for vision?",
    base=BASE,
    encodings=ENCODINGS,
    parts={
        **{f"recipe-{name}": _tried(f"The recipe: {name}.", settings) for name, settings in TRIED.items()},
        "screening": Part("Every encoding once, for a short while.", SCREENED, settings={"epochs": 50}),
        "main": Part("The most telling encodings, at equal spans.", TELLING, seeds=(0, 1, 2)),
        "own": Part(
            "Each encoding with the span of its own paper or code.",
            (*(name for name in TELLING if name not in ("none", "learned-ape")), "uniform-code"),
            seeds=(0, 1, 2),
            settings={"span": None},
        ),
        "perturbed": Part(
            "Positions that are moved at random in training.",
            ("learned-ape", "axial", "liere-8", "comrope-ld-8"),
            seeds=(0, 1, 2),
            settings={"perturb": 1.0},
        ),
        "half": _fewer("Half of the data.", 2),
        "fifth": _fewer("A fifth of the data.", 5),
    },
)

_PHOTOGRAPHS: dict[str, Any] = {
    "data": "data/imagenette160", "size": (160, 160), "patch": 16, "batch": 256, "learning_rate": 1e-3,
    "strength": {"pad": 20},
}  # fmt: skip
"""The rate by the root of the batch, and images moved by as much of their side as those of CIFAR-100."""

PHOTOGRAPHED = ("learned-ape", "axial", "mixed", "spherical", "spherical-symmetric", "comrope-ld-8")

IMAGENETTE = Study(
    name="equivariance-imagenette",
    question="Is it the same with larger images?",
    base=replace(BASE, **_PHOTOGRAPHS),
    encodings=ENCODINGS,
    parts={
        "imagenette": Part("Ten classes of photographs at 160 pixels.", PHOTOGRAPHED, seeds=(0, 1, 2)),
        "imagenette-again": Part(
            "The same, for claims that were put before these seeds were run.", PHOTOGRAPHED, seeds=(3, 4, 5)
        ),
    },
)
