"""What test images and held-out images each show: contrasts, tests of equality, and what accuracy is correlated with.

    {{ contrast_tables.compare_image_sets({"mixed less axial": (runs("main"), ["mixed"], ["axial"])}) }}

Test images are the same in all runs; those held out of training differ by seed. Where runs are missing, rows are left out,
and a table without rows is a note.
"""

import math
from collections.abc import Mapping, Sequence

from scipy import stats

from context_tables import list_labels, list_runs
from markdown_text import format_percent, format_table
from ropewalk.lab.record import RunRecord
from ropewalk.lab.statistics import (
    MeanEstimate,
    compute_equality_test,
    compute_variance_shares,
    estimate_means,
)
from ropewalk.lab.studies.claims import ClaimValue, get_test_accuracy
from ropewalk.lab.studies.equivariance import EQUIVARIANCE_CLAIMS, PREREGISTERED_SIZE_CLAIMS, SIZE_48_LABEL
from study_tables import (
    NOT_RUN,
    Records,
    collect_values,
    estimate_group_contrast,
    estimate_levels,
    format_estimate,
    list_claims,
    probe_mean,
    result_metric,
)

IMAGE_SETS: dict[str, ClaimValue] = {
    "test images": get_test_accuracy,
    "held-out images": result_metric("validation_accuracy"),
}
GroupContrast = tuple[Records, Sequence[str], Sequence[str]]
"""Runs, and two groups of names, of which the second is subtracted."""


def compare_image_sets(contrasts: Mapping[str, GroupContrast]) -> str:
    """Each contrast on test and on held-out images, and on which of them its interval excludes zero."""
    rows = []
    for title, (records, one, other) in contrasts.items():
        found = [estimate_group_contrast(collect_values(records, value), one, other) for value in IMAGE_SETS.values()]
        if all(found):
            cells = [format_estimate(each, sign="+", digits=2) for each in found]
            rows.append([title, *cells, _describe_exclusion([_excludes_zero(each) for each in found])])
    return format_table(["difference, points", *IMAGE_SETS, "interval excludes zero"], rows) if rows else NOT_RUN


def _excludes_zero(found: MeanEstimate | None) -> bool:
    return found is not None and found.half is not None and abs(found.mean) > found.half


def _describe_exclusion(excluded: Sequence[bool]) -> str:
    names = [name for name, each in zip(IMAGE_SETS, excluded, strict=True) if each]
    return {0: "no", len(IMAGE_SETS): "on both"}.get(len(names), f"on {' and '.join(names)} alone")


def compare_equality_tests(runs: Mapping[str, Records], names: Sequence[str]) -> str:
    """Whether those of the names that were run differ at all: F and p on test and on held-out images, and their range."""
    rows = []
    for title, records in runs.items():
        cells, known = [], {record.name for record in records}
        tested = [name for name in names if name in known]
        for value in IMAGE_SETS.values():
            found = compute_equality_test(collect_values(records, value), tested) if len(tested) > 1 else None
            levels = [estimate_levels(records, value)[name].mean for name in tested] if found else []
            cells.append(
                f"F {found.statistic:.1f}, p {found.probability:.3f}; {max(levels) - min(levels):.1f}" if found else ""
            )
        if any(cells):
            rows.append([title, str(len(tested)), *cells])
    heads = [f"{name}: F, p; range, points" for name in IMAGE_SETS]
    return format_table(["runs", "rotations", *heads], rows) if rows else NOT_RUN


def compare_as_units(records: Records, one: Sequence[str], other: Sequence[str]) -> str:
    """p of the difference of two groups on test images if encodings, not seeds, are the units (Student's t test)."""
    levels = {name: each.mean for name, each in estimate_levels(records, get_test_accuracy).items()}
    sides = [[levels[name] for name in names if name in levels] for names in (one, other)]
    return f"p {stats.ttest_ind(*sides).pvalue:.2f}" if min(map(len, sides)) > 1 else NOT_RUN


# What accuracy is correlated with


def measure_mean_turn(record: RunRecord) -> float | None:
    """The geometric mean of the radians by which channels rotate across the image, over all layers, after training."""
    radians = [abs(each) for row in record.probes.get("frequencies", []) for each in row.get("radians", ())]
    return math.exp(math.fsum(map(math.log, radians)) / len(radians)) if radians and min(radians) > 0 else None


def measure_mean_log_turn(record: RunRecord) -> float | None:
    turn = measure_mean_turn(record)
    return None if turn is None else math.log(turn)


measure_broken_equivariance = probe_mean("equivariance", "expected")
PREDICTORS: dict[str, ClaimValue] = {
    "logarithm of the geometric mean turn": measure_mean_log_turn,
    "error of equivariance": measure_broken_equivariance,
}


def list_correlations(records: Records, names: Sequence[str]) -> str:
    """How well each predictor goes with accuracy over these names: Pearson's r of the means, with 95 % intervals."""
    heads = [*IMAGE_SETS, "the other predictor"]
    others = dict(zip(PREDICTORS, reversed(PREDICTORS.values()), strict=True))
    rows = [
        [title, *(_format_correlation(records, names, value, each) for each in (*IMAGE_SETS.values(), others[title]))]
        for title, value in PREDICTORS.items()
    ]
    return format_table(["correlation with", *heads], rows) if any(any(row[1:]) for row in rows) else NOT_RUN


def _format_correlation(records: Records, names: Sequence[str], one: ClaimValue, other: ClaimValue) -> str:
    """With Fisher's interval, which needs more than three names."""
    sides = [estimate_levels(records, value) for value in (one, other)]
    pairs = [[side[name].mean for side in sides] for name in names if all(name in side for side in sides)]
    if len(pairs) < 4 or any(len(set(values)) < 2 for values in zip(*pairs, strict=True)):
        return ""
    found = stats.pearsonr(*zip(*pairs, strict=True))
    low, high = found.confidence_interval(0.95)
    return f"{found.statistic:.2f} ({low:.2f} to {high:.2f})"


# Claims, kernels and variances


def list_reworded_claims(records: Records) -> str:
    """The claims on images of 48 pixels as pre-registered, and as they were published."""
    published = [claim for claim in EQUIVARIANCE_CLAIMS if claim.quantity == SIZE_48_LABEL]
    pairs = zip(PREREGISTERED_SIZE_CLAIMS, published, strict=True)
    return list_claims([each for pair in pairs for each in pair], records)


def average_last_epochs(metric: str, count: int = 10) -> ClaimValue:
    """The mean of a share over the last epochs, in points."""

    def measure(record: RunRecord) -> float | None:
        curve = record.list_metric(metric)[-count:]
        return 100 * math.fsum(curve) / len(curve) if len(curve) == count else None

    return measure


def take_result(key: str) -> ClaimValue:
    return lambda record: (record.result or {}).get(key)


KERNEL_VALUES: dict[str, tuple[ClaimValue, int]] = {
    "accuracy on test images, points": (get_test_accuracy, 2),
    "accuracy on held-out images, points": (result_metric("validation_accuracy"), 2),
    "the same, mean of the last ten epochs": (average_last_epochs("validation_accuracy"), 2),
    "loss on test images": (take_result("test_loss"), 3),
    "loss on held-out images": (take_result("validation_loss"), 3),
}


def compare_repeated_runs(before: Records, after: Records) -> str:
    """Mean differences of runs of the same name and seed that were made twice, with the interval of these differences."""
    rows = []
    for title, (value, digits) in KERNEL_VALUES.items():
        first, second = collect_values(before, value), collect_values(after, value)
        found = [
            second[name][seed] - each for name in first for seed, each in first[name].items() if seed in second.get(name, {})
        ]
        if len(found) > 1:
            estimate = estimate_means({"": found})[""]
            rows.append(
                [title, format_estimate(estimate, sign="+", digits=digits), f"{sum(x < 0 for x in found)} of {len(found)}"]
            )
    return format_table(["ours less cuDNN's", "difference", "negative"], rows) if rows else NOT_RUN


def format_variance_share(records: Records, name: str) -> str:
    """The share of a name in the sum of the variances of test accuracy, in per cent."""
    values = {each: list(seeds.values()) for each, seeds in collect_values(records, get_test_accuracy).items()}
    shares = compute_variance_shares({each: some for each, some in values.items() if len(some) > 1})
    return format_percent(shares[name]) if name in shares else NOT_RUN


def format_text_variance(name: str) -> str:
    """The share of an encoding in the sum of variances of the study of texts, and the interval of a mean without it."""
    scores = {label: [run["test_bits"] for run in list_runs(label)] for label in list_labels()}
    share = compute_variance_shares(scores)[name]
    without = estimate_means({label: each for label, each in scores.items() if label != name})
    half = next(iter(without.values())).half
    return f"{format_percent(share)} of the sum of variances; without it, intervals are ± {half:.3f}"
