"""How far may rotations of rows and columns fail to commute? CIFAR-100, one angle from axial to spherical RoPE.

The encodings of the study of equivariance differ in more than equivariance: in frequencies, in directions, in what is
learned. Here one number changes at a time, nothing is learned, and everything else is identical.

    e1         ε = 0, 30, 90° × base 100, 3 of `axial-spherical`, with the same frequencies along each axis; a control for
               the quarter of channels that 90° leaves idle; a learned table, none, and the ordered product at 90°
    e2         How many different frequencies there are, at equal geometric means: 1 against 12
    e2-rest    The same at other means, with fewer seeds
    e3         Fixed oblique directions, with axial RoPE's lengths
    e3-learned Learned directions: mixed against learned axial
    e4         The ends at 90° once more, trained with one random offset of all positions of an image

The rules were committed before any run: `DEGREE_CONTRASTS`, and those of `make_slope_contrast`.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

import ropewalk
from ropewalk import theory
from ropewalk.lab.encoding_spec import EncodingSpec
from ropewalk.lab.studies.claims import ClaimSide
from ropewalk.lab.studies.contrasts import EQUIVALENCE_MARGIN, PairedContrast
from ropewalk.lab.studies.equivariance import EQUIVARIANCE_BASE
from ropewalk.lab.studies.study import Study, StudyPart

DEGREE_ANGLES, DEGREE_BASES = (0, 30, 90), (100, 3)
DEGREE_SEEDS = tuple(range(100, 110))
"""Seeds that no earlier study has."""
FEWER_SEEDS = DEGREE_SEEDS[:5]
DEGREE_GRID = (8, 8)
DEGREE_SHIFTS = tuple(map(float, range(1, 9)))
"""Patches by which both tokens move, along each axis, for the error of equivariance."""

_SPAN = EQUIVARIANCE_BASE.span or 0.0
_BLOCKS = EQUIVARIANCE_BASE.width // EQUIVARIANCE_BASE.heads // 4
_FASTEST = _SPAN / (DEGREE_GRID[0] - 1)
"""Radians a patch of the fastest channel, where a part has no common span: the same as the span gives."""
_SLOWEST = _FASTEST * 100 ** (-(_BLOCKS - 1) / _BLOCKS)
_IDLE_BASE = 3 ** ((_BLOCKS - 1) / _BLOCKS * 9 / 8)
"""9 frequencies from 1 to base^(-8/9), the range of 12 frequencies of base 3."""


def _tilted(**options: Any) -> EncodingSpec:
    return ("axial-spherical", options)


def _equivariant(**options: Any) -> EncodingSpec:
    """Axial RoPE with its own scale: for parts without a common span, which would make the fastest channels equal."""
    return _tilted(angle=0, **{"scale": _FASTEST, **options})


def name_arm(angle: int, base: int) -> str:
    """The name of an encoding of e1."""
    return f"angle-{angle}-base-{base}"


DEGREE_ENCODINGS: dict[str, EncodingSpec] = {
    **{name_arm(angle, base): _tilted(angle=angle, base=base) for base in DEGREE_BASES for angle in DEGREE_ANGLES},
    "three-quarters": _tilted(angle=0, base=_IDLE_BASE, rotary_dim=36),
    "ordered-90": _tilted(angle=90, base=100, ordered=True),
    "learned-ape": "learned-ape",
    "none": "none",
    "one-at-0.73": _equivariant(base=100, frequencies=1),
    "two-at-0.73": _equivariant(base=100, frequencies=2),
    "one-at-2.1": _equivariant(base=10, frequencies=1),
    "two-at-2.1": _equivariant(base=10, frequencies=2),
    "twelve-at-2.1": _equivariant(base=10),
    "one-at-0.37": _equivariant(base=1, scale=0.37 / (DEGREE_GRID[0] - 1)),
    "golden": (
        "golden",
        {"coordinates": "index", "fastest": _FASTEST, "slowest": _SLOWEST, "frequencies": _BLOCKS},
    ),
    "mixed": "mixed:base=100",
    "learned-axial": "axial:learned=true",
}
_ENDS = tuple(name_arm(90, base) for base in DEGREE_BASES)

DEGREE_PARTS = {
    "e1": StudyPart(
        "Angles 0, 30 and 90° with bases 100 and 3, a control, and baselines.",
        (
            *(name_arm(angle, base) for base in DEGREE_BASES for angle in DEGREE_ANGLES),
            *("three-quarters", "ordered-90", "learned-ape", "none"),
        ),
        seeds=DEGREE_SEEDS,
    ),
    "e2": StudyPart(
        "One frequency, at the geometric mean of base 100.", ("one-at-0.73",), seeds=DEGREE_SEEDS, settings={"span": None}
    ),
    "e2-rest": StudyPart(
        "One, two and twelve frequencies at other geometric means.",
        ("two-at-0.73", "one-at-2.1", "two-at-2.1", "twelve-at-2.1", "one-at-0.37"),
        seeds=FEWER_SEEDS,
        settings={"span": None},
    ),
    "e3": StudyPart(
        "Oblique directions, with axial RoPE's lengths.", ("golden",), seeds=DEGREE_SEEDS, settings={"span": None}
    ),
    "e3-learned": StudyPart(
        "Learned wave vectors against learned frequencies.", ("mixed", "learned-axial"), seeds=DEGREE_SEEDS
    ),
    "e4": StudyPart(
        "90° with one random offset of up to 8 patches of all positions of an image, in training.",
        _ENDS,
        seeds=DEGREE_SEEDS,
        settings={"shift": 1.0, "per_sample": True},
    ),
}


def _arm(angle: int, base: int, part: str = "e1") -> ClaimSide:
    return ClaimSide(name_arm(angle, base), part)


def _subtract(one: ClaimSide, other: ClaimSide) -> dict[ClaimSide, float]:
    return {one: 1.0, other: -1.0}


def _subtract_over_bases(one: int, other: int, *, part: str = "e1", other_part: str = "e1") -> dict[ClaimSide, float]:
    """The mean over both bases of one angle less another."""
    share = 1 / len(DEGREE_BASES)
    ones = {_arm(one, base, part): share for base in DEGREE_BASES}
    return ones | {_arm(other, base, other_part): -share for base in DEGREE_BASES}


_AXIAL = _arm(0, 100)
PRIMARY_CONTRAST = PairedContrast(
    "E1", "90° less 0°, mean over both bases.", _subtract_over_bases(90, 0), EQUIVALENCE_MARGIN, family=True
)
OFFSET_CONTRAST = PairedContrast(
    "E4",
    "90° less 90° that was trained with random offsets, mean over both bases.",
    _subtract_over_bases(90, 90, other_part="e4"),
)
"""Training with offsets is another way to make a model relative: it agrees with E1 if both intervals overlap."""
DEGREE_CONTRASTS = (
    PRIMARY_CONTRAST,
    PairedContrast(
        "E2",
        "One frequency less twelve, at the same geometric mean.",
        _subtract(ClaimSide("one-at-0.73", "e2"), _AXIAL),
        EQUIVALENCE_MARGIN,
        family=True,
    ),
    PairedContrast(
        "E3",
        "Fixed oblique directions less axial ones, with the same lengths.",
        _subtract(ClaimSide("golden", "e3"), _AXIAL),
        EQUIVALENCE_MARGIN,
        family=True,
    ),
    PairedContrast(
        "base × ε",
        "90° less 0° at base 100, less the same at base 3.",
        {_arm(90, 100): 1.0, _arm(0, 100): -1.0, _arm(90, 3): -1.0, _arm(0, 3): 1.0},
    ),
    PairedContrast("30°", "30° less 0°, mean over both bases.", _subtract_over_bases(30, 0), EQUIVALENCE_MARGIN),
    PairedContrast(
        "E1c",
        "0° on three quarters of the channels less 0° on all, base 3.",
        _subtract(ClaimSide("three-quarters", "e1"), _arm(0, 3)),
        EQUIVALENCE_MARGIN,
    ),
    PairedContrast(
        "90°, idle channels",
        "90° less 0° on three quarters of the channels, base 3.",
        _subtract(_arm(90, 3), ClaimSide("three-quarters", "e1")),
        EQUIVALENCE_MARGIN,
    ),
    PairedContrast(
        "ordered",
        "The ordered product less the exponential of the sum, both at 90°, base 100.",
        _subtract(ClaimSide("ordered-90", "e1"), _arm(90, 100)),
        EQUIVALENCE_MARGIN,
    ),
    PairedContrast(
        "rotation",
        "0° at base 100 less a learned table.",
        _subtract(_AXIAL, ClaimSide("learned-ape", "e1")),
    ),
    PairedContrast(
        "E3, learned",
        "Mixed less learned axial, which start with the same lengths.",
        _subtract(ClaimSide("mixed", "e3-learned"), ClaimSide("learned-axial", "e3-learned")),
        EQUIVALENCE_MARGIN,
    ),
    OFFSET_CONTRAST,
)
"""The first three are the family. The others are secondary: their intervals are not adjusted."""


def compute_equivariance_error(angle: float, base: float) -> float:
    """The root mean square over places, shifts of 1 to 8 patches and both axes of the expected change of a score, relative
    to the score's own root mean square. At the study's span."""
    encoding = ropewalk.create(
        "axial-spherical", head_dim=4 * _BLOCKS, size=DEGREE_GRID, angle=angle, base=base, scale=_FASTEST
    ).double()
    change = theory.equivariance(encoding, encoding.grid(*DEGREE_GRID, dtype=torch.float64), DEGREE_SHIFTS)
    return math.sqrt(change.expected.square().mean().item())


def make_slope_contrast(errors: Mapping[tuple[int, int], float] | None = None) -> PairedContrast:
    """The slope of accuracy on the error of equivariance over the six arms of e1, with an intercept for each base.

    Least squares are linear in the accuracies: with e the errors by angle and base, the weight of an arm is its distance
    from the mean of its base over the sum of squares of all of them.
    """
    if errors is None:
        arms = ((angle, base) for base in DEGREE_BASES for angle in DEGREE_ANGLES)
        errors = {arm: compute_equivariance_error(*arm) for arm in arms}
    means = {base: math.fsum(errors[angle, base] for angle in DEGREE_ANGLES) / len(DEGREE_ANGLES) for base in DEGREE_BASES}
    centred = {_arm(angle, base): error - means[base] for (angle, base), error in errors.items()}
    squares = math.fsum(each**2 for each in centred.values())
    weights = {arm: each / squares for arm, each in centred.items()}
    text = "Slope of accuracy on the error of equivariance, within each base."
    return PairedContrast("slope", text, weights, quantity="points for an error of 1")


DEGREE_STUDY = Study(
    name="degree",
    question="How far may rotations of rows and columns fail to commute, all else equal?",
    base=EQUIVARIANCE_BASE,
    encodings=DEGREE_ENCODINGS,
    parts=DEGREE_PARTS,
)
