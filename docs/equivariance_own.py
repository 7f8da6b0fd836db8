"""Encodings of the study of equivariance with the span of their own paper or code, beside the common one."""

from collections.abc import Callable, Mapping, Sequence

import studied
import tables
from ropewalk.lab.intervals import differences
from ropewalk.lab.studies.claims import Line
from ropewalk.lab.studies.equivariance_claims import accuracy

BASES = ("axial", "learned-ape")


def table(own: Sequence[Line], equal: Sequence[Line]) -> str:
    """What each comes to with both spans, and what it has with its own above others with the common one."""
    if not own:
        return studied.ABSENT
    every = studied.by_name([*equal, *({**line, "name": _own(line["name"])} for line in own)], accuracy)
    columns = {"span, radians": studied.probed(own, fastest), "equal span": _twin(studied.probed(equal, accuracy))}
    columns |= {f"above {base}": _above(every, base) for base in BASES}
    rows = [
        [f"`{name}`", studied.told(each), *(cell(name) for cell in columns.values())]
        for name, each in studied.levels(own, accuracy).items()
    ]
    return tables.table(["encoding", "own span", *columns], rows)


def fastest(line: Line) -> float | None:
    """Radians across the image of the fastest pair or triplet."""
    return max((each for row in line["probes"].get("frequencies", []) for each in row["radians"]), default=None)


def _own(name: str) -> str:
    return f"own {name}"


def _twin(cell: Callable[[str], str]) -> Callable[[str], str]:
    """A column of the encoding that is the same but for its span."""
    return lambda name: cell(name.removesuffix("-code"))


def _above(values: Mapping[str, Mapping[int, float]], base: str) -> Callable[[str], str]:
    """A column: what an encoding has with its own span above another with the common one."""
    owns = [name for name in values if name.startswith(_own(""))]
    found = differences(values, base, only=owns) if base in values else {}
    return lambda name: studied.told(found.get(_own(name)), sign="+")
