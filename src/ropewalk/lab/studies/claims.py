"""What others have claimed, judged by the runs of a study.

A claim says of one number of two encodings, or of one encoding under two conditions, that the first is larger by more than
so much, or that both are equal; or of a number of one encoding that it is above zero. The difference is taken seed by
seed, with the 95 % interval d ± h that `intervals` gives it, of which the variance comes from all encodings of the part
together. Then

    larger by t   seen if d - h > t        not seen if d + h < t        else it cannot be told
    equal         seen if |d| + h < M      not seen if |d| - h > M      else it cannot be told

with the margin M of one point, which was fixed before anything ran. A single seed has no interval: of that nothing is told.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ropewalk.lab.intervals import Estimate, differences, means

Line = Mapping[str, Any]
Value = Callable[[Line], float | None]
"""A number of a run, in points if it is a share; None where the run has none."""

MARGIN = 1.0
SEEN, NOT_SEEN, UNTOLD = "seen", "not seen", "cannot tell"


class Side(NamedTuple):
    """An encoding of a study in a part of it."""

    name: str
    part: str = "main"


@dataclass(frozen=True)
class Claim:
    """That `one` has more of a value than `other`, or than nothing, by more than `by`; or, if `by` is None, as much.

    text    What is claimed, in a sentence, and `source` who claims it.
    told    What the value is, in words.
    """

    text: str
    source: str
    one: Side
    other: Side | None
    value: Value
    told: str
    by: float | None = 0.0


class Verdict(NamedTuple):
    """What a study says of a claim: the difference that it found, None if there is none to speak of, and the word for it."""

    claim: Claim
    found: Estimate | None
    word: str


def judged(claims: Sequence[Claim], lines: Iterable[Line]) -> list[Verdict]:
    """Each claim with what the runs say of it."""
    every = list(lines)
    return [_judged(claim, every) for claim in claims]


def _judged(claim: Claim, lines: Sequence[Line]) -> Verdict:
    found = difference(claim.one, claim.other, claim.value, lines)
    if found is None or found.half is None:
        return Verdict(claim, found, UNTOLD)
    return Verdict(claim, found, _equal(found) if claim.by is None else _larger(found, claim.by))


def difference(one: Side, other: Side | None, value: Value, lines: Iterable[Line]) -> Estimate | None:
    """One less the other, by seeds, or one alone. All encodings of both parts serve to tell what a seed does."""
    values: dict[str, dict[int, float]] = {}
    parts = {side.part for side in (one, other) if side is not None}
    for line in lines:
        if line["part"] in parts and (found := value(line)) is not None:
            values.setdefault(_cell(Side(line["name"], line["part"])), {})[line["seed"]] = found
    if other is None:
        return means({name: list(each.values()) for name, each in values.items()}).get(_cell(one))
    if _cell(one) not in values or _cell(other) not in values:
        return None
    return differences(values, _cell(other), only=[_cell(one)]).get(_cell(one))


def _cell(side: Side) -> str:
    return f"{side.part}/{side.name}"


def _larger(found: Estimate, by: float) -> str:
    half = found.half or 0.0
    return SEEN if found.mean - half > by else NOT_SEEN if found.mean + half < by else UNTOLD


def _equal(found: Estimate) -> str:
    half, size = found.half or 0.0, abs(found.mean)
    return SEEN if size + half < MARGIN else NOT_SEEN if size - half > MARGIN else UNTOLD
