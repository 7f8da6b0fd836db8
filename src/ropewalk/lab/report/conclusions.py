"""What a group of runs shows and what it does not, in sentences computed from its numbers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.lab.report.caveats import describe_unfinished, list_caveats
from ropewalk.lab.report.format import exceeds_interval, join_words
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.results_table import TableRow, format_difference, format_score
from ropewalk.lab.statistics import estimate_differences


class GroupConclusions(NamedTuple):
    """Sentences of both kinds."""

    shown: list[str]
    open: list[str]


def write_conclusions(group: RunGroup, rows: Sequence[TableRow], baseline: str) -> GroupConclusions:
    """All that the numbers say."""
    done = [row for row in rows if row.score]
    if not done:
        return GroupConclusions([], ["No run is done, so that nothing can be concluded.", *describe_unfinished(rows)])
    compared = [row for row in done if row.difference]
    shown = [*_describe_best(group, done), *_describe_significant(compared, baseline)]
    return GroupConclusions(
        shown,
        [
            *_describe_missing_baseline(done, baseline),
            *_describe_insignificant(compared, baseline),
            *list_caveats(group, rows),
        ],
    )


def _describe_best(group: RunGroup, done: Sequence[TableRow]) -> list[str]:
    """The best mean, and what is not told apart from it."""
    if len(done) < 2:
        return []
    metric = group.metric
    best = min(done, key=lambda row: metric.rank(row.score.mean) if row.score else math.inf)
    others = estimate_differences(group.scores(), best.label)
    near = [
        row.label
        for row in done
        if row.label != best.label and not (row.label in others and exceeds_interval(others[row.label]))
    ]
    first = f"The {metric.most} mean is that of {best.label}, {format_score(best.score, metric)}"
    if all(each.half is None for each in others.values()):
        return [f"{first}; one seed of each does not tell whether it would be {metric.most} again."]
    return [
        f"{first}, but it is not told apart from {join_words(near)}."
        if near
        else f"{first}. All others are {'below' if metric.higher else 'above'} it by more than their intervals."
    ]


def _describe_significant(compared: Sequence[TableRow], baseline: str) -> list[str]:
    """Differences that exceed their intervals."""
    far = [row for row in compared if row.difference and exceeds_interval(row.difference)]
    above, below = ([row for row in far if row.difference and (row.difference.mean > 0) == up] for up in (True, False))
    sides = {"Above": above, "Below": below}
    if not far and any(row.difference and row.difference.half is not None for row in compared):
        return [f"No difference to {baseline} exceeds its interval."]
    return [
        f"{side} {baseline} by more than its interval: {_join_differences(rows)}." for side, rows in sides.items() if rows
    ]


def _describe_insignificant(compared: Sequence[TableRow], baseline: str) -> list[str]:
    """Differences that do not."""
    near = [
        row
        for row in compared
        if row.difference and row.difference.half is not None and not exceeds_interval(row.difference)
    ]
    if not near:
        return []
    words = "That does not show that they are equal: an interval says how far apart they may be."
    return [f"Not told apart from {baseline}: {_join_differences(near)}. {words}"]


def _join_differences(rows: Sequence[TableRow]) -> str:
    return join_words([f"{row.label} ({format_difference(row.difference, row.metric)} {row.metric.points})" for row in rows])


def _describe_missing_baseline(done: Sequence[TableRow], baseline: str) -> list[str]:
    if any(row.label == baseline for row in done):
        lonely = [row.label for row in done if row.label != baseline and row.difference is None]
        return (
            [f"No seed is shared by {baseline} and {join_words(lonely)}: there is no paired difference."] if lonely else []
        )
    return [f"No run of the baseline, {baseline}, is done under these settings: there are no differences to it."]
