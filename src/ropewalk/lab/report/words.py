"""Numbers and settings in words."""

from collections.abc import Sequence
from typing import Any

from ropewalk.lab.intervals import Estimate
from ropewalk.lab.metric import ACCURACY, Metric

MINUS = "−"


def told(estimate: Estimate | None, metric: Metric) -> str:
    """67.5 ± 3.2 %, or without an interval where there is none."""
    if estimate is None:
        return "–"
    return f"{metric.number(estimate.mean, estimate.half)} {metric.unit}".rstrip()


def apart(estimate: Estimate | None, metric: Metric) -> str:
    """+4.1 ± 1.0, in hundredths where it is a share."""
    if estimate is None:
        return "–"
    return metric.number(estimate.mean, estimate.half, sign="+").replace("-", MINUS)


def percent(estimate: Estimate | None) -> str:
    """An accuracy."""
    return told(estimate, ACCURACY)


def points(estimate: Estimate | None) -> str:
    """A difference of accuracies."""
    return apart(estimate, ACCURACY)


def exceeds(estimate: Estimate) -> bool:
    """Whether a difference is larger than half its interval; one without an interval is not."""
    return estimate.half is not None and abs(estimate.mean) > estimate.half


def amount(value: float | None) -> str:
    """A number with a few digits that count, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def setting(value: Any) -> str:
    """A value as a reader would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(setting(each) for each in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {setting(each)}" for key, each in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def listed(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
