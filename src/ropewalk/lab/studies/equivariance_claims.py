"""What papers and articles claim of encodings for vision, as far as the study of equivariance can tell."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.lab.probes.resolving import MODES
from ropewalk.lab.studies.claims import Claim, Line, Side, Value

ARTICLE, GEIJN, COMROPE, HEO = "a popular summary", "arXiv 2511.08368", "arXiv 2506.03737", "arXiv 2403.13298"
OURS, FIRST, AFTER = f"our reading of {GEIJN}", "our first three seeds", "ours, put after the runs"
ACCURACY = "test accuracy, points"


def accuracy(line: Line) -> float:
    """On the test set, in points."""
    return 100 * line["test_accuracy"]


def at(side: int) -> Value:
    """The accuracy on validation images of so many pixels a side, with patches placed as suits the encoding best.

    Rules of context extension, which few encodings take, do not count.
    """

    def value(line: Line) -> float | None:
        found = [
            row["accuracy"] for row in _rows(line, "resolution") if row["size"] == [side, side] and row["mode"] in MODES
        ]
        return 100 * max(found) if found else None

    return value


def lost(rho: float) -> Value:
    """Points that are lost when all positions move at random by so many patches."""

    def value(line: Line) -> float | None:
        found = {row["rho"]: row["accuracy"] for row in _rows(line, "offset")}
        return 100 * (found[0.0] - found[rho]) if rho in found else None

    return value


def slowing(line: Line) -> float | None:
    """How much faster the first layers turn than the last after training, if anything of it is learned."""
    rows = _rows(line, "frequencies")
    return slowed(rows) if rows and line["encoding_parameters"] else None


def slowed(rows: Sequence[Mapping[str, Any]]) -> float:
    """By how many radians across the image the middle frequency of the first third of layers exceeds that of the last."""
    middle, third = [_median(row["radians"]) for row in rows], max(1, len(rows) // 3)
    return math.fsum(middle[:third]) / third - math.fsum(middle[-third:]) / third


def _rows(line: Line, probe: str) -> list[dict[str, Any]]:
    return line["probes"].get(probe, [])


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _better(text: str, source: str, one: Side, other: Side, by: float = 0.0) -> Claim:
    return Claim(text, source, one, other, accuracy, ACCURACY, by)


def _equal(text: str, source: str, one: Side, other: Side) -> Claim:
    return Claim(text, source, one, other, accuracy, ACCURACY, None)


CLAIMS = (
    _better("Rotation beats a learned absolute table.", ARTICLE, Side("axial"), Side("learned-ape")),
    _better("It does so by 8 points on CIFAR-100.", GEIJN, Side("axial"), Side("learned-ape"), by=7.0),
    _better("Mixed beats axial, since it sees oblique directions.", HEO, Side("mixed"), Side("axial")),
    _equal("Spherical RoPE, fixed, is as good as mixed.", ARTICLE, Side("spherical"), Side("mixed")),
    _equal("Learned, it is as good as mixed.", GEIJN, Side("learned-spherical"), Side("mixed")),
    _equal("What is relative along no axis is as good as mixed.", OURS, Side("spherical-symmetric"), Side("mixed")),
    _better("With a fifth of the data spherical beats axial.", GEIJN, Side("spherical", "fifth"), Side("axial", "fifth")),
    _better("Uniform RoPE is weak: frequencies must differ.", GEIJN, Side("axial"), Side("uniform")),
    _better("Uniform RoPE is weak with the span of its code, too.", AFTER, Side("axial"), Side("uniform-code", "own")),
    Claim("Deeper layers learn lower frequencies: mixed.", GEIJN, Side("mixed"), None, slowing, "radians across the image"),
    Claim(
        "The same: learned spherical.", GEIJN, Side("learned-spherical"), None, slowing, "radians across the image"
    ),
    Claim(
        "When all positions move, LieRE loses more than ComRoPE.", COMROPE, Side("liere-8"), Side("comrope-ld-8"), lost(4.0),
        "points lost when positions move by 4 patches",
    ),
    _better(
        "ComRoPE gains by positions that are moved in training.", COMROPE, Side("comrope-ld-8", "perturbed"),
        Side("comrope-ld-8"),
    ),
    _better(
        "ComRoPE gains by larger blocks.", COMROPE, Side("comrope-ld-8", "screening"), Side("comrope-ld-2", "screening")
    ),
    _better("ComRoPE beats LieRE.", COMROPE, Side("comrope-ld-8"), Side("liere-8")),
    Claim(
        "Rotation beats a table on images half as wide again.", ARTICLE, Side("axial"), Side("learned-ape"), at(48),
        "validation accuracy at 48 px, the better way of placing, points",
    ),
    Claim(
        "On larger images spherical is better than axial.", GEIJN, Side("spherical"), Side("axial"), at(48),
        "validation accuracy at 48 px, the better way of placing, points",
    ),
)  # fmt: skip


def _again(name: str) -> Side:
    return Side(name, "imagenette-again")


PHOTOGRAPHS = (
    _better("Rotation beats a learned absolute table.", ARTICLE, _again("axial"), _again("learned-ape")),
    _better("Mixed beats axial, since it sees oblique directions.", HEO, _again("mixed"), _again("axial")),
    _better("Axial beats spherical.", FIRST, _again("axial"), _again("spherical")),
    _equal("Spherical RoPE, fixed, is as good as mixed.", ARTICLE, _again("spherical"), _again("mixed")),
    _equal("What is relative along no axis is as good as mixed.", OURS, _again("spherical-symmetric"), _again("mixed")),
    _better("ComRoPE beats axial.", COMROPE, _again("comrope-ld-8"), _again("axial")),
)
"""Of photographs: put when three seeds of five encodings had been seen, to be judged by three others."""
