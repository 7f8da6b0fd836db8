"""Pre-registered contrasts: weighted sums of results that each seed gives for itself, judged by a paired t test.

    per seed   d = Σ w · value     over the runs of the contrast; seeds that lack one of them are left out
    different  if the 95 % interval of the mean of d excludes 0
    equivalent if its 90 % interval lies within ± the margin
    undecided  if neither; both may hold

There is no test before the test. p values of the family are adjusted by Holm's method, where a contrast that was not run
counts as p = 1. Sign flips are a check on the t test. As test images are the same for all runs, an interval from the bits
of single images holds for other images, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ropewalk.lab.record import RunRecord, unpack_bits
from ropewalk.lab.statistics import (
    PairedEstimate,
    adjust_by_holm,
    compute_sign_flip_p,
    estimate_crossed_half,
    estimate_paired_mean,
)
from ropewalk.lab.studies.claims import ACCURACY_LABEL, ClaimSide, ClaimValue, get_test_accuracy

CONTRAST_DIFFERENT, CONTRAST_EQUIVALENT, CONTRAST_UNDECIDED = "different", "equivalent", "undecided"
EQUIVALENCE_MARGIN = 0.5
"""Points of test accuracy: a quarter of what rotation is worth over a learned table."""
EQUIVALENCE_LEVEL = 0.90
"""The level of the interval for equivalence: two one-sided tests at 5 %."""


@dataclass(frozen=True)
class PairedContrast:
    """A weighted sum of the results of several runs with the same seed.

    name      A short name.
    text      What is asked, in a sentence.
    weights   The weight of each run.
    margin    Within which it counts as equivalent to zero; None: equivalence is not asked.
    family    Whether its p value is adjusted together with the others.
    quantity  What the number is, with its unit.
    """

    name: str
    text: str
    weights: Mapping[ClaimSide, float]
    margin: float | None = None
    family: bool = False
    quantity: str = ACCURACY_LABEL


class ContrastVerdict(NamedTuple):
    """What the runs show of a contrast; None where runs are missing.

    found       Mean and error over seeds.
    loss        The same of the test loss, in nats.
    flip_p      The p value by sign flips.
    holm_p      The p value adjusted for the family; None outside of it.
    image_half  Half of the 95 % interval that holds for other test images, too.
    word        "different", "equivalent", "different, equivalent" or "undecided".
    """

    contrast: PairedContrast
    found: PairedEstimate | None
    loss: PairedEstimate | None
    flip_p: float | None
    holm_p: float | None
    image_half: float | None
    word: str


def get_test_loss(record: RunRecord) -> float | None:
    """The mean negative log-likelihood of the test set, in nats."""
    return (record.result or {}).get("test_loss")


def judge_contrasts(contrasts: Sequence[PairedContrast], records: Iterable[RunRecord]) -> list[ContrastVerdict]:
    """Judge each contrast on the records of a study."""
    known = list(records)
    verdicts = [_judge_contrast(each, known) for each in contrasts]
    family = [i for i, each in enumerate(contrasts) if each.family]
    p_values = [1.0 if (found := verdicts[i].found) is None or found.p_value is None else found.p_value for i in family]
    for i, adjusted in zip(family, adjust_by_holm(p_values), strict=True):
        verdicts[i] = verdicts[i]._replace(holm_p=adjusted if verdicts[i].found is not None else None)
    return verdicts


def collect_contrast(
    contrast: PairedContrast, records: Iterable[RunRecord], value: ClaimValue = get_test_accuracy
) -> dict[int, float]:
    """The weighted sum of each seed whose runs all have the value, by seed."""
    found: dict[int, dict[ClaimSide, float]] = {}
    for record in records:
        side = ClaimSide(record.name or "", record.part or "")
        if side in contrast.weights and (each := value(record)) is not None:
            found.setdefault(record.config.seed, {})[side] = each
    return {
        seed: sum(weight * values[side] for side, weight in contrast.weights.items())
        for seed, values in sorted(found.items())
        if values.keys() == contrast.weights.keys()
    }


def judge_estimate(found: PairedEstimate | None, margin: float | None) -> str:
    """The verdict on a mean over seeds."""
    if found is None or found.error is None:
        return CONTRAST_UNDECIDED
    words = []
    if abs(found.mean) > (found.half_width() or 0.0):
        words.append(CONTRAST_DIFFERENT)
    if margin is not None and abs(found.mean) + (found.half_width(EQUIVALENCE_LEVEL) or 0.0) <= margin:
        words.append(CONTRAST_EQUIVALENT)
    return ", ".join(words) or CONTRAST_UNDECIDED


def intervals_overlap(one: PairedEstimate | None, other: PairedEstimate | None) -> bool | None:
    """Whether the 95 % intervals of two contrasts overlap; None if one of them has none."""
    if one is None or other is None or one.error is None or other.error is None:
        return None
    return abs(one.mean - other.mean) <= (one.half_width() or 0.0) + (other.half_width() or 0.0)


def _judge_contrast(contrast: PairedContrast, records: Sequence[RunRecord]) -> ContrastVerdict:
    differences = list(collect_contrast(contrast, records).values())
    found = estimate_paired_mean(differences)
    loss = estimate_paired_mean(list(collect_contrast(contrast, records, get_test_loss).values()))
    flip_p = compute_sign_flip_p(differences) if differences else None
    image_half = _estimate_image_half(contrast, records)
    return ContrastVerdict(contrast, found, loss, flip_p, None, image_half, judge_estimate(found, contrast.margin))


def _estimate_image_half(contrast: PairedContrast, records: Sequence[RunRecord]) -> float | None:
    """Half of the interval for other seeds and other images; None if a run has no bits of single images."""
    bits: dict[int, dict[ClaimSide, np.ndarray]] = {}
    for record in records:
        side = ClaimSide(record.name or "", record.part or "")
        count = ((record.data or {}).get("counts") or {}).get("test")
        if side in contrast.weights and record.test_correct is not None and count is not None:
            bits.setdefault(record.config.seed, {})[side] = np.array(unpack_bits(record.test_correct, count), float)
    whole = [each for each in bits.values() if each.keys() == contrast.weights.keys()]
    if len(whole) < 2 or len({values.size for each in whole for values in each.values()}) != 1:
        return None
    rows = [sum(100 * weight * each[side] for side, weight in contrast.weights.items()) for each in whole]
    return estimate_crossed_half(np.stack([np.asarray(row) for row in rows]))
