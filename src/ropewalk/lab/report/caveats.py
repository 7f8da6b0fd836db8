"""What a group of runs does not show, whatever its numbers are: few seeds, one data set, one recipe, unequal encodings."""

import math
import statistics
from collections.abc import Sequence

from ropewalk.lab.report.format import format_amount, format_count, join_words
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.table import TableRow
from ropewalk.lab.statistics import compute_cochran_limit
from ropewalk.lab.task_types import find_task

SMALL_DATASETS = {
    "digits": "1,797 images of 8 × 8 pixels",
    "mnist": "images of 28 × 28 pixels, on which simple models are nearly perfect",
    "fashion-mnist": "images of 28 × 28 pixels",
    "cifar10": "50,000 images of 32 × 32 pixels",
    "cifar100": "50,000 images of 32 × 32 pixels, 500 of a class",
}
"""Data sets that are small, and how small."""


FEW_SEEDS_CAVEAT = (
    "So few seeds do not show whether they do: one that is less steady than others gets too short an interval."
)
UNSTEADY_CAVEAT = "its own interval is too short, and those of the others are too long."
MEANS_CAVEAT = (
    "Intervals are of seeds alone: another test set would move all means. What a seed does to all encodings alike is in the "
    "means, whose intervals may be too short for that, and not in the differences: compare encodings by these."
)
MULTIPLE_COMPARISONS_CAVEAT = (
    "intervals of differences are widened, so that all of them together hold in 95 of 100 such comparisons. That is not so "
    "of what is chosen from several reports, nor of the probes, whose intervals stand each for itself."
)
RECIPE_CAVEAT = (
    "All encodings share one recipe, which was not tuned for each: one that wants another learning rate or more epochs is "
    "not seen at its best. Options that a label does not name are as the encoding has them by default."
)


def list_caveats(group: RunGroup, rows: Sequence[TableRow]) -> list[str]:
    """All of them."""
    done = [row for row in rows if row.score]
    return [
        *_seed_caveats(done),
        *_multiple_comparisons_caveat(done),
        *describe_unfinished(rows),
        _scope_caveat(group),
        RECIPE_CAVEAT,
        _span_caveat(group),
        *_size_caveat(done),
        *_prefix_caveat(group),
    ]


def _seed_caveats(done: Sequence[TableRow]) -> list[str]:
    """How many there are, and what intervals are made from."""
    counts = [len(row.done) for row in done]
    freedom = sum(counts) - len(counts)
    if not freedom:
        return ["There is one seed of each encoding, so that there are no intervals: no difference can be told from luck."]
    many = format_count(counts[0], "seed") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} seeds"
    few = f" {FEW_SEEDS_CAVEAT}" if min(counts) < 5 else ""
    lone = [row.label for row in done if len(row.done) == 1]
    pooled = (
        f"With {many} of each encoding, the variance between seeds is pooled over {format_count(len(counts), 'encoding')} "
        f"({format_count(freedom, 'degree')} of freedom), which takes it that all vary alike.{few}"
    )
    words = [f"Of {join_words(lone)} there is one seed, whose interval rests on the variance of the others."] if lone else []
    return [pooled, *_unsteady_caveat(done), MEANS_CAVEAT, *words]


def _unsteady_caveat(done: Sequence[TableRow]) -> list[str]:
    """An encoding that has more of the variance than chance would give it, among those of the number of seeds that most
    have, or the larger of such numbers."""
    counts = [len(row.done) for row in done]
    seeds = max(counts, key=lambda count: (count > 1, counts.count(count), count))
    found = {row.label: _variance(row) for row in done if len(row.done) == seeds > 1}
    most, total = max(found, key=found.__getitem__), math.fsum(found.values())
    if len(found) < 2 or not found[most] > (limit := compute_cochran_limit(len(found), seeds)) * total:
        return []
    chance = f"more than equal ones would have by chance in 99 of 100 comparisons ({100 * limit:.0f} %)"
    share = f"{most} has {100 * found[most] / total:.0f} % of the sum of their variances"
    return [f"Of {len(found)} encodings with {seeds} seeds each, {share}, {chance}: {UNSTEADY_CAVEAT}"]


def _variance(row: TableRow) -> float:
    return statistics.variance(found.score for found in row.runs.values() if found.score is not None)


def _multiple_comparisons_caveat(done: Sequence[TableRow]) -> list[str]:
    """What several comparisons do to intervals."""
    count = sum(row.difference is not None and row.difference.half is not None for row in done)
    return [f"{count} encodings are compared with one at once: {MULTIPLE_COMPARISONS_CAVEAT}"] if count > 1 else []


def describe_unfinished(rows: Sequence[TableRow]) -> list[str]:
    """Runs without a result: means lack them."""
    lacking = [f"{row.label}, seed {seed} ({why})" for row in rows for seed, why in row.undone.items()]
    words = "If a run failed because of its encoding, the mean of the others is too high."
    said = f"{format_count(len(lacking), 'run')} without a result, left out of all means: {'; '.join(lacking)}. {words}"
    return [said] if lacking else []


def _scope_caveat(group: RunGroup) -> str:
    """One data set, one model."""
    data, fraction = str(group.settings.get("data")), group.settings.get("fraction", 1.0)
    part = f" {100 * fraction:g} % of what is left for training is used." if fraction < 1 else ""
    size = f", which is small ({SMALL_DATASETS[data]})" if data in SMALL_DATASETS else ""
    return (
        f"All runs are of one model on one data set, {data}{size}: what holds here, the order of encodings too, need not "
        f"hold for others.{part}"
    )


def _span_caveat(group: RunGroup) -> str:
    """Whether encodings begin with equal frequencies."""
    span, across = group.settings.get("span"), find_task(group.settings).sample
    if span is None:
        return (
            f"Spans are not equal: each encoding turns its fastest channel across the {across} as far as its paper has it, "
            "so that what differs may be the range of frequencies and not the method."
        )
    return (
        f"Spans are equal: the fastest channel of each encoding that turns channels begins with {span:g} radians across the "
        f"{across}. Those that learn may move away from it, and a span that suits one need not suit another."
    )


def _size_caveat(done: Sequence[TableRow]) -> list[str]:
    """Encodings that learn have more parameters."""
    counts = [row.encoding_parameters for row in done if row.encoding_parameters is not None]
    shares = [row.encoding_parameters / row.parameters for row in done if row.encoding_parameters and row.parameters]
    if not shares or min(counts) == max(counts):
        return []
    few, many = format_amount(min(counts)), format_amount(max(counts))
    return [f"Encodings learn from {few} to {many} numbers of their own, up to {100 * max(shares):.2g} % of a model."]


def _prefix_caveat(group: RunGroup) -> list[str]:
    """What tokens without a position do to invariance."""
    if not group.prefix:
        return []
    return [
        f"All models have {group.prefix}, without a position. Moving all patches changes what patches and these tokens give "
        "each other, so that no encoding is invariant to it in these models, those that see only differences included."
    ]
