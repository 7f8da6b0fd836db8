"""Claims from papers, tested on the records of a study.

A claim states that a value is larger for one encoding than for another by more than some amount, that both are equal, or
that the value of one encoding is above zero. The difference is paired by seed, with a 95 % confidence interval d ± h
whose variance is pooled over all encodings of the part. The verdict is

    larger by t   confirmed if d - h > t      refuted if d + h < t        otherwise undecided
    equal         confirmed if |d| + h < M    refuted if |d| - h > M      otherwise undecided

The margin M of one point is pre-registered. Intervals are not corrected for multiple comparisons. A single seed has no
interval, so that a claim about it is undecided.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.lab.record import RunRecord
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means

ClaimValue = Callable[[RunRecord], float | None]
"""A number of a run, in points if it is a share; None if the record does not have it."""

EQUALITY_MARGIN = 1.0
CLAIM_CONFIRMED, CLAIM_REFUTED, CLAIM_UNDECIDED = "confirmed", "refuted", "undecided"


class ClaimSide(NamedTuple):
    """An encoding of a study in one of its parts."""

    name: str
    part: str = "main"


@dataclass(frozen=True)
class StudyClaim:
    """A claim that a value of `one` exceeds that of `other` by more than `by`.

    text      The claim, in a sentence.
    source    Who makes it.
    other     None: the value of `one` is compared with zero.
    value     The number that is compared.
    quantity  What the number is, with its unit.
    by        None: both are equal.
    """

    text: str
    source: str
    one: ClaimSide
    other: ClaimSide | None
    value: ClaimValue
    quantity: str
    by: float | None = 0.0


class ClaimVerdict(NamedTuple):
    """A claim, the difference that the runs show (None if runs are missing), and the verdict."""

    claim: StudyClaim
    found: MeanEstimate | None
    word: str


ACCURACY_LABEL = "test accuracy, points"


def get_test_accuracy(record: RunRecord) -> float | None:
    """Test accuracy in points."""
    accuracy = (record.result or {}).get("test_accuracy")
    return None if accuracy is None else 100 * accuracy


def claim_larger_accuracy(text: str, source: str, one: ClaimSide, other: ClaimSide, by: float = 0.0) -> StudyClaim:
    """A claim that the test accuracy of `one` is more than `by` points above that of `other`."""
    return StudyClaim(text, source, one, other, get_test_accuracy, ACCURACY_LABEL, by)


def claim_equal_accuracy(text: str, source: str, one: ClaimSide, other: ClaimSide) -> StudyClaim:
    """A claim that both have the same test accuracy."""
    return StudyClaim(text, source, one, other, get_test_accuracy, ACCURACY_LABEL, None)


def judge_claims(claims: Sequence[StudyClaim], records: Iterable[RunRecord]) -> list[ClaimVerdict]:
    """Test each claim on the records of a study."""
    known = list(records)
    return [_judge_claim(claim, known) for claim in claims]


def _judge_claim(claim: StudyClaim, records: Sequence[RunRecord]) -> ClaimVerdict:
    found = estimate_difference(claim.one, claim.other, claim.value, records)
    if found is None or found.half is None:
        return ClaimVerdict(claim, found, CLAIM_UNDECIDED)
    return ClaimVerdict(claim, found, _judge_equal(found) if claim.by is None else _judge_larger(found, claim.by))


def estimate_difference(
    one: ClaimSide, other: ClaimSide | None, value: ClaimValue, records: Iterable[RunRecord]
) -> MeanEstimate | None:
    """The mean of `one` minus `other`, paired by seed, or of `one` alone; the variance is pooled over their parts."""
    values: dict[str, dict[int, float]] = {}
    parts = {side.part for side in (one, other) if side is not None}
    for record in records:
        if record.part in parts and record.name is not None and (found := value(record)) is not None:
            values.setdefault(_format_side(ClaimSide(record.name, record.part)), {})[record.config.seed] = found
    if other is None:
        return estimate_means({side: list(each.values()) for side, each in values.items()}).get(_format_side(one))
    if _format_side(one) not in values or _format_side(other) not in values:
        return None
    return estimate_differences(values, _format_side(other), only=[_format_side(one)]).get(_format_side(one))


def _format_side(side: ClaimSide) -> str:
    return f"{side.part}/{side.name}"


def _judge_larger(found: MeanEstimate, by: float) -> str:
    half = found.half or 0.0
    if found.mean - half > by:
        return CLAIM_CONFIRMED
    return CLAIM_REFUTED if found.mean + half < by else CLAIM_UNDECIDED


def _judge_equal(found: MeanEstimate) -> str:
    half, size = found.half or 0.0, abs(found.mean)
    if size + half < EQUALITY_MARGIN:
        return CLAIM_CONFIRMED
    return CLAIM_REFUTED if size - half > EQUALITY_MARGIN else CLAIM_UNDECIDED
