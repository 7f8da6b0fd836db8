"""What a group of runs shows and what it does not, in sentences computed from its numbers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.lab.intervals import differences
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.limits import limits, undone
from ropewalk.lab.report.rows import Row
from ropewalk.lab.report.words import apart, exceeds, listed, told


class Conclusions(NamedTuple):
    """Sentences of both kinds."""

    shown: list[str]
    open: list[str]


def conclude(group: Group, rows: Sequence[Row], baseline: str) -> Conclusions:
    """All that the numbers say."""
    done = [row for row in rows if row.score]
    if not done:
        return Conclusions([], ["No run is done, so that nothing can be concluded.", *undone(rows)])
    compared = [row for row in done if row.difference]
    shown = [*_best(group, done), *_told_apart(compared, baseline)]
    return Conclusions(shown, [*_no_baseline(done, baseline), *_alike(compared, baseline), *limits(group, rows)])


def _best(group: Group, done: Sequence[Row]) -> list[str]:
    """The best mean, and what is not told apart from it."""
    if len(done) < 2:
        return []
    metric = group.metric
    best = min(done, key=lambda row: metric.rank(row.score.mean) if row.score else math.inf)
    others = differences(group.scores(), best.label)
    near = [
        row.label for row in done if row.label != best.label and not (row.label in others and exceeds(others[row.label]))
    ]
    first = f"The {metric.most} mean is that of {best.label}, {told(best.score, metric)}"
    if all(each.half is None for each in others.values()):
        return [f"{first}; one seed of each does not tell whether it would be {metric.most} again."]
    return [
        f"{first}, but it is not told apart from {listed(near)}."
        if near
        else f"{first}. All others are {'below' if metric.higher else 'above'} it by more than their intervals."
    ]


def _told_apart(compared: Sequence[Row], baseline: str) -> list[str]:
    """Differences that exceed their intervals."""
    far = [row for row in compared if row.difference and exceeds(row.difference)]
    above, below = ([row for row in far if row.difference and (row.difference.mean > 0) == up] for up in (True, False))
    sides = {"Above": above, "Below": below}
    if not far and any(row.difference and row.difference.half is not None for row in compared):
        return [f"No difference to {baseline} exceeds its interval."]
    return [f"{side} {baseline} by more than its interval: {_each(rows)}." for side, rows in sides.items() if rows]


def _alike(compared: Sequence[Row], baseline: str) -> list[str]:
    """Differences that do not."""
    near = [row for row in compared if row.difference and row.difference.half is not None and not exceeds(row.difference)]
    if not near:
        return []
    words = "That does not show that they are equal: an interval says how far apart they may be."
    return [f"Not told apart from {baseline}: {_each(near)}. {words}"]


def _each(rows: Sequence[Row]) -> str:
    return listed([f"{row.label} ({apart(row.difference, row.metric)} {row.metric.points})" for row in rows])


def _no_baseline(done: Sequence[Row], baseline: str) -> list[str]:
    if any(row.label == baseline for row in done):
        lonely = [row.label for row in done if row.label != baseline and row.difference is None]
        return [f"No seed is shared by {baseline} and {listed(lonely)}: there is no paired difference."] if lonely else []
    return [f"No run of the baseline, {baseline}, is done under these settings: there are no differences to it."]
