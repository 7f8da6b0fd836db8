"""What a group of runs shows and what it does not, in sentences computed from its numbers."""

from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.lab.intervals import SHARE, differences
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.rows import Row
from ropewalk.lab.report.words import counted, exceeds, listed, percent, points

SMALL = {
    "digits": "1,797 images of 8 × 8 pixels",
    "mnist": "images of 28 × 28 pixels, on which simple models are nearly perfect",
    "fashion-mnist": "images of 28 × 28 pixels",
    "cifar10": "50,000 images of 32 × 32 pixels",
    "cifar100": "50,000 images of 32 × 32 pixels, 500 of a class",
}
"""Data sets that are small, and how small."""


class Conclusions(NamedTuple):
    """Sentences of both kinds."""

    shown: list[str]
    open: list[str]


def conclude(group: Group, rows: Sequence[Row], baseline: str) -> Conclusions:
    """All that the numbers say."""
    done = [row for row in rows if row.accuracy]
    if not done:
        return Conclusions([], ["No run is done, so that nothing can be concluded.", *_undone(rows)])
    apart = [row for row in done if row.difference]
    shown = [*_best(group, done), *_told_apart(apart, baseline)]
    left = [*_alike(apart, baseline), *_luck(apart), *_seeds(done), *_undone(rows), *_scope(group)]
    return Conclusions(shown, [*_no_baseline(done, baseline), *left])


def _best(group: Group, done: Sequence[Row]) -> list[str]:
    """The highest mean, and what is not told apart from it."""
    if len(done) < 2:
        return []
    best = max(done, key=lambda row: row.accuracy.mean if row.accuracy else 0.0)
    apart = differences(group.accuracies(), best.label)
    near = [row.label for row in done if row.label in apart and not exceeds(apart[row.label])]
    first = f"The highest mean is that of {best.label}, {percent(best.accuracy)}."
    if all(each.half is None for each in apart.values()):
        return [first]
    return [
        f"{first} Not told apart from it: {listed(near)}."
        if near
        else f"{first} All others are below it by more than their intervals."
    ]


def _told_apart(apart: Sequence[Row], baseline: str) -> list[str]:
    """Differences that exceed their intervals."""
    far = [row for row in apart if row.difference and exceeds(row.difference)]
    above, below = ([row for row in far if row.difference and (row.difference.mean > 0) == up] for up in (True, False))
    sides = {"Above": above, "Below": below}
    if not far and any(row.difference and row.difference.half is not None for row in apart):
        return [f"No difference to {baseline} exceeds its interval."]
    return [f"{side} {baseline} by more than its interval: {_each(rows)}." for side, rows in sides.items() if rows]


def _alike(apart: Sequence[Row], baseline: str) -> list[str]:
    """Differences that do not."""
    near = [row for row in apart if row.difference and row.difference.half is not None and not exceeds(row.difference)]
    return [f"Not told apart from {baseline}: {_each(near)}."] if near else []


def _each(rows: Sequence[Row]) -> str:
    return listed([f"{row.label} ({points(row.difference)} points)" for row in rows])


def _luck(apart: Sequence[Row]) -> list[str]:
    """What several comparisons do to one interval each; by the sum of the chances, which is never too low."""
    count = sum(row.difference is not None and row.difference.half is not None for row in apart)
    if count < 2:
        return []
    chance = min(100.0, 100 * (1 - SHARE) * count)
    return [
        f"Each of {count} comparisons has a 95 % interval of its own: if no encoding changed anything, the chance that at "
        f"least one exceeds its interval would be up to {chance:.0f} %."
    ]


def _seeds(done: Sequence[Row]) -> list[str]:
    """How many there are, and what intervals are made from."""
    counts = [len(row.done) for row in done]
    freedom = sum(counts) - len(counts)
    if not freedom:
        return ["There is one seed of each encoding, so that there are no intervals: no difference can be told from luck."]
    many = counted(counts[0], "seed") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} seeds"
    pooled = (
        f"With {many} of each encoding, the variance between seeds is pooled over {counted(len(counts), 'encoding')} "
        f"({counted(freedom, 'degree')} of freedom), which takes it that all vary alike. "
        "Intervals are of seeds alone: another test set would move all means."
    )
    lone = [row.label for row in done if len(row.done) == 1]
    return [pooled] + (
        [f"Of {listed(lone)} there is one seed, whose interval rests on the variance of the others."] if lone else []
    )


def _undone(rows: Sequence[Row]) -> list[str]:
    """Runs without a result: means lack them."""
    lacking = [f"{row.label}, seed {seed} ({why})" for row in rows for seed, why in row.undone.items()]
    return (
        [f"{counted(len(lacking), 'run')} without a result, left out of all means: {'; '.join(lacking)}."] if lacking else []
    )


def _no_baseline(done: Sequence[Row], baseline: str) -> list[str]:
    if any(row.label == baseline for row in done):
        lonely = [row.label for row in done if row.label != baseline and row.difference is None]
        return [f"No seed is shared by {baseline} and {listed(lonely)}: there is no paired difference."] if lonely else []
    return [f"No run of the baseline, {baseline}, is done under these settings: there are no differences to it."]


def _scope(group: Group) -> list[str]:
    """One data set, one model, one recipe."""
    data, fraction = str(group.settings.get("data")), group.settings.get("fraction", 1.0)
    part = f" {100 * fraction:g} % of what is left for training is used." if fraction < 1 else ""
    size = f", which is small ({SMALL[data]})" if data in SMALL else ""
    return [
        f"All runs are on one data set, {data}{size}: what holds here need not hold on others.{part}",
        "All encodings share one recipe: one that wants another learning rate or more epochs is not seen at its best.",
    ]
