"""What the scores of a group show, in sentences that carry its numbers. What holds for every report is in the template."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.lab.report.format import exceeds_interval, format_count, join_words
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.result_rows import TableRow
from ropewalk.lab.results_table import format_difference, format_score
from ropewalk.lab.statistics import compute_cochran_limit, compute_variance_shares, estimate_differences


class GroupConclusions(NamedTuple):
    """Sentences on the scores, and on the runs they rest on."""

    findings: list[str]
    caveats: list[str]


def write_conclusions(group: RunGroup, rows: Sequence[TableRow], baseline: str) -> GroupConclusions:
    """Describe the best encoding, significant differences, and what limits them."""
    done = [row for row in rows if row.score]
    if not done:
        return GroupConclusions(["No run is finished."], _describe_unfinished(rows))
    findings = [
        *_describe_best(group, done),
        *_describe_differences(done, baseline),
        *_describe_missing_pairs(done, baseline),
    ]
    caveats = [*_describe_seeds(done), *_describe_unsteady(done), *_describe_unfinished(rows), *_describe_ratio_noise(rows)]
    return GroupConclusions(findings, caveats)


def _describe_best(group: RunGroup, done: Sequence[TableRow]) -> list[str]:
    """The best mean, and what does not differ significantly from it."""
    if len(done) < 2:
        return []
    metric = group.metric
    best = min(done, key=lambda row: metric.rank(row.score.mean) if row.score else math.inf)
    first = f"{best.label} has the {metric.most} mean test {metric.name}, {format_score(best.score, metric)}"
    others = estimate_differences(group.scores(), best.label)
    if all(each.half is None for each in others.values()):
        return [f"{first}. One seed of each encoding does not allow a significance test."]
    near = [
        row.label
        for row in done
        if row.label != best.label and not (row.label in others and exceeds_interval(others[row.label]))
    ]
    second = f"does not differ significantly from {join_words(near)}" if near else "differs significantly from all others"
    return [f"{first}. It {second}."]


def _describe_differences(done: Sequence[TableRow], baseline: str) -> list[str]:
    """Which encodings differ significantly from the baseline, and which do not."""
    compared = [row for row in done if row.difference and row.difference.half is not None]
    parts: dict[str, list[TableRow]] = {
        f"Significantly above {baseline}": [],
        f"Significantly below {baseline}": [],
        f"No significant difference from {baseline}": [],
    }
    above, below, near = parts.values()
    for row in compared:
        assert row.difference is not None
        (near if not exceeds_interval(row.difference) else above if row.difference.mean > 0 else below).append(row)
    return [f"{title}, in {done[0].metric.points}: {_join_differences(part)}." for title, part in parts.items() if part]


def _join_differences(rows: Sequence[TableRow]) -> str:
    return join_words([f"{row.label} {format_difference(row.difference, row.metric)}" for row in rows])


def _describe_missing_pairs(done: Sequence[TableRow], baseline: str) -> list[str]:
    """Encodings that cannot be compared with the baseline."""
    others = [row for row in done if row.label != baseline]
    if len(others) == len(done):
        return [f"The baseline, {baseline}, has no finished run with these settings, so there are no differences."]
    unpaired = [row.label for row in others if row.difference is None]
    return [f"{join_words(unpaired)}: no seed in common with {baseline}, so no difference."] if unpaired else []


def _describe_seeds(done: Sequence[TableRow]) -> list[str]:
    """How many seeds intervals rest on."""
    counts = [len(row.done) for row in done]
    if max(counts) == 1:
        return ["There is one seed of each encoding, so there are no confidence intervals."]
    seeds = format_count(counts[0], "seed") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} seeds"
    freedom = format_count(sum(counts) - len(counts), "degree")
    alone = [row.label for row in done if len(row.done) == 1]
    borrowed = f" Intervals of {join_words(alone)}, with one seed, rest on the variance of the others." if alone else ""
    return [f"{seeds[0].upper()}{seeds[1:]} of each encoding, {freedom} of freedom.{borrowed}"]


def _describe_unsteady(done: Sequence[TableRow]) -> list[str]:
    """An encoding with a larger variance than the others by Cochran's C test, which the pooled intervals do not allow for.

    The test compares variances of equally many seeds: those that most encodings have, or the larger of such numbers.
    """
    counts = [len(row.done) for row in done]
    seeds = max(counts, key=lambda count: (count > 1, counts.count(count), count))
    found = compute_variance_shares({row.label: _list_scores(row) for row in done if len(row.done) == seeds > 1})
    if len(found) < 2:
        return []
    most = max(found, key=found.__getitem__)
    limit = compute_cochran_limit(len(found), seeds)
    if not found[most] > limit:
        return []
    return [
        f"{most} has {100 * found[most]:.0f} % of the summed variance of the {len(found)} encodings with {seeds} "
        f"seeds (significant above {100 * limit:.0f} % by Cochran's C test, p < 0.01): its interval is too narrow, and "
        "those of the others are too wide."
    ]


def _describe_ratio_noise(rows: Sequence[TableRow]) -> list[str]:
    """How far the inference ratio of models without an encoding, which are timed against themselves, is from 1."""
    ratios = [ratio for row in rows for ratio in row.inference_ratios if not row.has_encoding]
    if not ratios:
        return []
    low, high, noise = f"{min(ratios):.2f}", f"{max(ratios):.2f}", max(abs(ratio - 1) for ratio in ratios)
    measured = f"a ratio of {low}" if low == high else f"ratios of {low} to {high}"
    return [
        f"Inference without an encoding, timed against itself, has {measured} instead of 1: the ratios of other encodings "
        f"have an error of about {noise:.2f} too."
    ]


def _list_scores(row: TableRow) -> list[float]:
    return [found.score for found in row.runs.values() if found.score is not None]


def _describe_unfinished(rows: Sequence[TableRow]) -> list[str]:
    missing = [f"{row.label}, seed {seed} ({reason})" for row in rows for seed, reason in row.undone.items()]
    return (
        [f"{format_count(len(missing), 'run')} without a result, left out of all means: {'; '.join(missing)}."]
        if missing
        else []
    )


def list_missing(group: RunGroup) -> list[str]:
    """What could not be measured, files that could not be read, and duplicate runs."""
    return [
        *_describe_json_lines(group),
        *_describe_refusals(group),
        *(f"{problem}." for record in group.runs for problem in record.problems),
        *([f"{format_count(group.twice, 'duplicate run')} left out."] if group.twice else []),
    ]


def _describe_json_lines(group: RunGroup) -> list[str]:
    """What JSON lines do not hold."""
    lines = [record for record in group.runs if record.location is None]
    subject = (
        "All runs were" if len(lines) == len(group.runs) else "1 run was" if len(lines) == 1 else f"{len(lines)} runs were"
    )
    sentences = [f"{subject} read from JSON lines, without weights."] if lines else []
    if any(record.neighbors is None for record in lines):
        sentences.append("Times are left out where the load of the machine was not recorded.")
    return sentences


def _describe_refusals(group: RunGroup) -> list[str]:
    """The first reason of each encoding and probe; probes with one reason together."""
    first: dict[tuple[str, str], str] = {}
    for label, seeds in group.found.items():
        for row in (row for record in seeds.values() for row in record.probes.get("refused", [])):
            first.setdefault((label, str(row.get("probe"))), str(row.get("why")))
    alike: dict[tuple[str, str], list[str]] = {}
    for (label, probe), reason in first.items():
        alike.setdefault((label, reason), []).append(probe)
    return [f"{label}, {join_words(probes)}: {reason}." for (label, reason), probes in alike.items()]
