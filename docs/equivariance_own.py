"""Encodings of the study of equivariance with the span of their own paper or code, beside the common one."""

from collections.abc import Callable, Sequence

import studied
import tables
from ropewalk.lab.studies.claims import ClaimSide, estimate_difference, get_test_accuracy
from studied import ResultLine

TWINS = {"uniform-code": "uniform"}
"""Names of what differs in the span alone."""
BASES = ("axial", "learned-ape")


def table(own: Sequence[ResultLine], equal: Sequence[ResultLine]) -> str:
    """What each comes to with both spans, and what it has with its own above itself and others with the common one."""
    if not own:
        return studied.ABSENT
    plain, every = studied.probed(equal, get_test_accuracy), [*own, *equal]
    columns: dict[str, Callable[[str], str]] = {"turns by, radians": studied.probed(own, fastest)}
    columns |= {"equal span": lambda name: plain(twin(name)), "above that": lambda name: above(name, twin(name), every)}
    columns |= {f"above {base}": lambda name, base=base: above(name, base, every) for base in BASES}
    rows = [
        [f"`{name}`", studied.told(each), *(cell(name) for cell in columns.values())]
        for name, each in studied.levels(own, get_test_accuracy).items()
    ]
    return tables.table(["encoding", "own span", *columns], rows)


def fastest(line: ResultLine) -> float | None:
    """Radians across the image that the fastest channels turn by after training."""
    return max((each for row in line["probes"].get("frequencies", []) for each in row["radians"]), default=None)


def twin(name: str) -> str:
    """The name in the main part."""
    return TWINS.get(name, name)


def above(name: str, base: str, lines: Sequence[ResultLine]) -> str:
    """What an encoding with its own span has above another with the common one, as claims are judged."""
    return studied.told(
        estimate_difference(ClaimSide(name, "own"), ClaimSide(base), get_test_accuracy, map(studied.Line, lines)), sign="+"
    )
