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

from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means

ResultLine = Mapping[str, Any]
ClaimValue = Callable[[ResultLine], float | None]
"""A number of a run, in points if it is a share; None where the run has none."""

EQUALITY_MARGIN = 1.0
CLAIM_CONFIRMED, CLAIM_REFUTED, CLAIM_UNDECIDED = "seen", "not seen", "cannot tell"


class ClaimSide(NamedTuple):
    """An encoding of a study in a part of it."""

    name: str
    part: str = "main"


@dataclass(frozen=True)
class StudyClaim:
    """That `one` has more of a value than `other`, or than nothing, by more than `by`; or, if `by` is None, as much.

    text    What is claimed, in a sentence, and `source` who claims it.
    told    What the value is, in words.
    """

    text: str
    source: str
    one: ClaimSide
    other: ClaimSide | None
    value: ClaimValue
    told: str
    by: float | None = 0.0


class ClaimVerdict(NamedTuple):
    """What a study says of a claim: the difference that it found, None if there is none to speak of, and the word for it."""

    claim: StudyClaim
    found: MeanEstimate | None
    word: str


def judge_claims(claims: Sequence[StudyClaim], lines: Iterable[ResultLine]) -> list[ClaimVerdict]:
    """Each claim with what the runs say of it."""
    every = list(lines)
    return [_judge_claim(claim, every) for claim in claims]


def _judge_claim(claim: StudyClaim, lines: Sequence[ResultLine]) -> ClaimVerdict:
    found = estimate_difference(claim.one, claim.other, claim.value, lines)
    if found is None or found.half is None:
        return ClaimVerdict(claim, found, CLAIM_UNDECIDED)
    return ClaimVerdict(claim, found, _judge_equal(found) if claim.by is None else _judge_larger(found, claim.by))


def estimate_difference(
    one: ClaimSide, other: ClaimSide | None, value: ClaimValue, lines: Iterable[ResultLine]
) -> MeanEstimate | None:
    """One less the other, by seeds, or one alone. All encodings of both parts serve to tell what a seed does."""
    values: dict[str, dict[int, float]] = {}
    parts = {side.part for side in (one, other) if side is not None}
    for line in lines:
        if line["part"] in parts and (found := value(line)) is not None:
            values.setdefault(_format_cell(ClaimSide(line["name"], line["part"])), {})[line["seed"]] = found
    if other is None:
        return estimate_means({name: list(each.values()) for name, each in values.items()}).get(_format_cell(one))
    if _format_cell(one) not in values or _format_cell(other) not in values:
        return None
    return estimate_differences(values, _format_cell(other), only=[_format_cell(one)]).get(_format_cell(one))


def _format_cell(side: ClaimSide) -> str:
    return f"{side.part}/{side.name}"


def _judge_larger(found: MeanEstimate, by: float) -> str:
    half = found.half or 0.0
    return CLAIM_CONFIRMED if found.mean - half > by else CLAIM_REFUTED if found.mean + half < by else CLAIM_UNDECIDED


def _judge_equal(found: MeanEstimate) -> str:
    half, size = found.half or 0.0, abs(found.mean)
    return (
        CLAIM_CONFIRMED
        if size + half < EQUALITY_MARGIN
        else CLAIM_REFUTED
        if size - half > EQUALITY_MARGIN
        else CLAIM_UNDECIDED
    )
