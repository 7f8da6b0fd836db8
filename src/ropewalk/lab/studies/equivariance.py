"""Does RoPE need to be equivariant for vision? CIFAR-100, all encodings, several seeds.

The question is that of arXiv 2511.08368, whose spherical RoPE breaks relativity along one axis and is said to lose nothing.
Its model and its recipe are taken here with 4 heads of 48 for 12 of 60, and a quarter of the epochs. All encodings have the
same weights at the start, the same data in the same order, and, but for the part that says otherwise, the same span: their
fastest channels turn by as much across the image. Papers compare under conditions that are not equal.

The recipe was chosen by `learned-ape` alone, on a tenth of the training set that was held out, before anything else ran.

What papers and articles claim of encodings for vision, as far as the study of equivariance can tell.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ropewalk.lab.encoding_spec import EncodingSpec
from ropewalk.lab.probes.resolution import RESOLUTION_MODES
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.studies.claims import ClaimSide, ClaimValue, ResultLine, StudyClaim
from ropewalk.lab.studies.study import Study, StudyPart

EQUIVARIANCE_ENCODINGS: dict[str, EncodingSpec] = {
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
DISTINCTIVE_ENCODINGS = (
    "learned-ape", "none", "axial", "learned-axial", "uniform", "mixed", "spherical", "learned-spherical",
    "spherical-symmetric", "liere-8", "comrope-ld-8", "golden",
)  # fmt: skip
SCREENED_ENCODINGS = tuple(name for name in EQUIVARIANCE_ENCODINGS if name != "uniform-code")
"""The published code of uniform RoPE differs from its paper in nothing but the span, which all have in common here."""
REDUCED_ENCODINGS = ("learned-ape", "axial", "mixed", "spherical", "uniform", "spherical-symmetric")
LONG_RUN_ENCODINGS = 100
"""Epochs of all parts but the first ones."""

_PAPER = replace(RECIPES["van-de-geijn-cifar"], width=192, heads=4, epochs=LONG_RUN_ENCODINGS, span=6.0)
_CROP: dict[str, Any] = {"augment": ("flip", "crop")}
_ADAMW: dict[str, Any] = {
    **_CROP, "dropout": 0.0, "drop_path": 0.0, "layer_scale": None, "optimiser": "adamw", "learning_rate": 2e-3
}  # fmt: skip
TUNED_ENCODINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "paper-crop": _CROP,
    "adamw": _ADAMW,
    "adamw-drop-path": {**_ADAMW, "drop_path": 0.1},
    "adamw-mean": {**_ADAMW, "pool": "mean"},
}
"""Recipes that were tried: the paper's; with plain crops; without what slows a short training down; with the mean of patches
in the place of a class token."""
EQUIVARIANCE_BASE = replace(_PAPER, **TUNED_ENCODINGS["adamw-mean"])


def _make_tuning_part(about: str, settings: dict[str, Any]) -> StudyPart:
    return StudyPart(about, ("learned-ape",), settings=settings | {"epochs": 60}, probed=False)


def _make_reduced_part(about: str, parts: int) -> StudyPart:
    """One of so many parts of the data, with as many times the epochs, also of warm-up and between two validations.

    Steps are about as many: of the last batch of an epoch, which is not full, nothing is trained on.
    """
    settings = {
        "fraction": 1 / parts,
        "epochs": parts * LONG_RUN_ENCODINGS,
        "every": parts,
        "warmup": parts * EQUIVARIANCE_BASE.warmup,
    }
    return StudyPart(about, REDUCED_ENCODINGS, seeds=(0, 1, 2), settings=settings)


EQUIVARIANCE_STUDY = Study(
    name="equivariance",
    question="Does RoPE need to be equivariant for vision?",
    base=EQUIVARIANCE_BASE,
    encodings=EQUIVARIANCE_ENCODINGS,
    parts={
        **{
            f"recipe-{name}": _make_tuning_part(f"The recipe: {name}.", settings)
            for name, settings in TUNED_ENCODINGS.items()
        },
        "screening": StudyPart("Every encoding once, for a short while.", SCREENED_ENCODINGS, settings={"epochs": 50}),
        "main": StudyPart("The most telling encodings, at equal spans.", DISTINCTIVE_ENCODINGS, seeds=(0, 1, 2)),
        "own": StudyPart(
            "Each encoding with the span of its own paper or code.",
            (*(name for name in DISTINCTIVE_ENCODINGS if name not in ("none", "learned-ape")), "uniform-code"),
            seeds=(0, 1, 2),
            settings={"span": None},
        ),
        "perturbed": StudyPart(
            "Positions that are moved at random in training.",
            ("learned-ape", "axial", "liere-8", "comrope-ld-8"),
            seeds=(0, 1, 2),
            settings={"perturb": 1.0},
        ),
        "half": _make_reduced_part("Half of the data.", 2),
        "fifth": _make_reduced_part("A fifth of the data.", 5),
    },
)

_PHOTOGRAPHS: dict[str, Any] = {
    "data": "data/imagenette160", "size": (160, 160), "patch": 16, "batch": 256, "learning_rate": 1e-3,
    "strength": {"pad": 20},
}  # fmt: skip
"""The rate by the root of the batch, and images moved by as much of their side as those of CIFAR-100."""

PHOTOGRAPH_ENCODINGS = ("learned-ape", "axial", "mixed", "spherical", "spherical-symmetric", "comrope-ld-8")

IMAGENETTE_STUDY = Study(
    name="equivariance-imagenette",
    question="Is it the same with larger images?",
    base=replace(EQUIVARIANCE_BASE, **_PHOTOGRAPHS),
    encodings=EQUIVARIANCE_ENCODINGS,
    parts={
        "imagenette": StudyPart("Ten classes of photographs at 160 pixels.", PHOTOGRAPH_ENCODINGS, seeds=(0, 1, 2)),
        "imagenette-again": StudyPart(
            "The same, for claims that were put before these seeds were run.", PHOTOGRAPH_ENCODINGS, seeds=(3, 4, 5)
        ),
    },
)

ARTICLE_SOURCE, GEIJN_SOURCE, COMROPE_SOURCE, HEO_SOURCE = (
    "a popular summary",
    "arXiv 2511.08368",
    "arXiv 2506.03737",
    "arXiv 2403.13298",
)
OUR_READING_SOURCE, FIRST_SEEDS_SOURCE, POST_HOC_SOURCE = (
    f"our reading of {GEIJN_SOURCE}",
    "our first three seeds",
    "ours, put after the runs",
)
ACCURACY_LABEL = "test accuracy, points"


def get_test_accuracy(line: ResultLine) -> float:
    """On the test set, in points."""
    return 100 * line["test_accuracy"]


def make_size_accuracy(side: int) -> ClaimValue:
    """The accuracy on validation images of so many pixels a side, with patches placed as suits the encoding best.

    Rules of context extension, which few encodings take, do not count.
    """

    def value(line: ResultLine) -> float | None:
        found = [
            row["accuracy"]
            for row in _get_probe_rows(line, "resolution")
            if row["size"] == [side, side] and row["mode"] in RESOLUTION_MODES
        ]
        return 100 * max(found) if found else None

    return value


def make_offset_loss(rho: float) -> ClaimValue:
    """Points that are lost when all positions move at random by so many patches."""

    def value(line: ResultLine) -> float | None:
        found = {row["rho"]: row["accuracy"] for row in _get_probe_rows(line, "offset")}
        return 100 * (found[0.0] - found[rho]) if rho in found else None

    return value


def measure_frequency_drop(line: ResultLine) -> float | None:
    """How much faster the first layers turn than the last after training, if anything of it is learned."""
    rows = _get_probe_rows(line, "frequencies")
    return compute_frequency_drop(rows) if rows and line["encoding_parameters"] else None


def compute_frequency_drop(rows: Sequence[Mapping[str, Any]]) -> float:
    """By how many radians across the image the middle frequency of the first third of layers exceeds that of the last."""
    middle, third = [_compute_median(row["radians"]) for row in rows], max(1, len(rows) // 3)
    return math.fsum(middle[:third]) / third - math.fsum(middle[-third:]) / third


def _get_probe_rows(line: ResultLine, probe: str) -> list[dict[str, Any]]:
    return line["probes"].get(probe, [])


def _compute_median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _claim_better(text: str, source: str, one: ClaimSide, other: ClaimSide, by: float = 0.0) -> StudyClaim:
    return StudyClaim(text, source, one, other, get_test_accuracy, ACCURACY_LABEL, by)


def _claim_equal(text: str, source: str, one: ClaimSide, other: ClaimSide) -> StudyClaim:
    return StudyClaim(text, source, one, other, get_test_accuracy, ACCURACY_LABEL, None)


EQUIVARIANCE_CLAIMS = (
    _claim_better("Rotation beats a learned absolute table.", ARTICLE_SOURCE, ClaimSide("axial"), ClaimSide("learned-ape")),
    _claim_better(
        "It does so by 8 points on CIFAR-100.", GEIJN_SOURCE, ClaimSide("axial"), ClaimSide("learned-ape"), by=7.0
    ),
    _claim_better(
        "Mixed beats axial, since it sees oblique directions.", HEO_SOURCE, ClaimSide("mixed"), ClaimSide("axial")
    ),
    _claim_equal("Spherical RoPE, fixed, is as good as mixed.", ARTICLE_SOURCE, ClaimSide("spherical"), ClaimSide("mixed")),
    _claim_equal("Learned, it is as good as mixed.", GEIJN_SOURCE, ClaimSide("learned-spherical"), ClaimSide("mixed")),
    _claim_equal(
        "What is relative along no axis is as good as mixed.",
        OUR_READING_SOURCE,
        ClaimSide("spherical-symmetric"),
        ClaimSide("mixed"),
    ),
    _claim_better(
        "With a fifth of the data spherical beats axial.",
        GEIJN_SOURCE,
        ClaimSide("spherical", "fifth"),
        ClaimSide("axial", "fifth"),
    ),
    _claim_better("Uniform RoPE is weak: frequencies must differ.", GEIJN_SOURCE, ClaimSide("axial"), ClaimSide("uniform")),
    _claim_better(
        "Uniform RoPE is weak with the span of its code, too.",
        POST_HOC_SOURCE,
        ClaimSide("axial"),
        ClaimSide("uniform-code", "own"),
    ),
    StudyClaim(
        "Deeper layers learn lower frequencies: mixed.",
        GEIJN_SOURCE,
        ClaimSide("mixed"),
        None,
        measure_frequency_drop,
        "radians across the image",
    ),
    StudyClaim(
        "The same: learned spherical.",
        GEIJN_SOURCE,
        ClaimSide("learned-spherical"),
        None,
        measure_frequency_drop,
        "radians across the image",
    ),
    StudyClaim(
        "When all positions move, LieRE loses more than ComRoPE.",
        COMROPE_SOURCE,
        ClaimSide("liere-8"),
        ClaimSide("comrope-ld-8"),
        make_offset_loss(4.0),
        "points lost when positions move by 4 patches",
    ),
    _claim_better(
        "ComRoPE gains by positions that are moved in training.",
        COMROPE_SOURCE,
        ClaimSide("comrope-ld-8", "perturbed"),
        ClaimSide("comrope-ld-8"),
    ),
    _claim_better(
        "ComRoPE gains by larger blocks.",
        COMROPE_SOURCE,
        ClaimSide("comrope-ld-8", "screening"),
        ClaimSide("comrope-ld-2", "screening"),
    ),
    _claim_better("ComRoPE beats LieRE.", COMROPE_SOURCE, ClaimSide("comrope-ld-8"), ClaimSide("liere-8")),
    StudyClaim(
        "Rotation beats a table on images half as wide again.",
        ARTICLE_SOURCE,
        ClaimSide("axial"),
        ClaimSide("learned-ape"),
        make_size_accuracy(48),
        "validation accuracy at 48 px, the better way of placing, points",
    ),
    StudyClaim(
        "On larger images spherical is better than axial.",
        GEIJN_SOURCE,
        ClaimSide("spherical"),
        ClaimSide("axial"),
        make_size_accuracy(48),
        "validation accuracy at 48 px, the better way of placing, points",
    ),
)


def _repeated_side(name: str) -> ClaimSide:
    return ClaimSide(name, "imagenette-again")


PHOTOGRAPH_CLAIMS = (
    _claim_better(
        "Rotation beats a learned absolute table.", ARTICLE_SOURCE, _repeated_side("axial"), _repeated_side("learned-ape")
    ),
    _claim_better(
        "Mixed beats axial, since it sees oblique directions.", HEO_SOURCE, _repeated_side("mixed"), _repeated_side("axial")
    ),
    _claim_better("Axial beats spherical.", FIRST_SEEDS_SOURCE, _repeated_side("axial"), _repeated_side("spherical")),
    _claim_equal(
        "Spherical RoPE, fixed, is as good as mixed.", ARTICLE_SOURCE, _repeated_side("spherical"), _repeated_side("mixed")
    ),
    _claim_equal(
        "What is relative along no axis is as good as mixed.",
        OUR_READING_SOURCE,
        _repeated_side("spherical-symmetric"),
        _repeated_side("mixed"),
    ),
    _claim_better("ComRoPE beats axial.", COMROPE_SOURCE, _repeated_side("comrope-ld-8"), _repeated_side("axial")),
)
"""Of photographs: put when three seeds of five encodings had been seen, to be judged by three others."""
