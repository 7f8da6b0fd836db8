"""Relative rotations against the others: the question of the study of equivariance, put to all of them at once."""

from collections.abc import Mapping, Sequence

import studied
import tables
from ropewalk.lab.statistics import MeanEstimate, estimate_contrast
from ropewalk.lab.studies.claims import get_test_accuracy
from studied import ResultLine

RELATIVE = ("axial", "learned-axial", "mixed", "golden", "comrope-ld-8")
OTHERS = ("spherical", "learned-spherical", "spherical-symmetric", "liere-8")
"""Rotations of several frequencies."""


def table(some: Mapping[str, Sequence[ResultLine]]) -> str:
    """The mean of the relative ones less that of the others, with its interval, for each group of lines by name."""
    rows = [[name, *_row(lines)] for name, lines in some.items() if lines]
    return tables.table(["runs", "relative", "not", "difference"], rows) if rows else studied.ABSENT


def _row(lines: Sequence[ResultLine]) -> list[str]:
    values = studied.by_name(lines, get_test_accuracy)
    sides = [[name for name in names if name in values] for names in (RELATIVE, OTHERS)]
    return [*(", ".join(f"`{name}`" for name in side) for side in sides), studied.told(between(values, *sides), sign="+")]


def between(values: Mapping[str, Mapping[int, float]], one: Sequence[str], other: Sequence[str]) -> MeanEstimate | None:
    """The mean of some less the mean of others, all of them with equal weight."""
    if not one or not other:
        return None
    return estimate_contrast(values, {name: 1 / len(one) for name in one} | {name: -1 / len(other) for name in other})
