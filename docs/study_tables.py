"""What a page of docs/studies can use: runs, values, columns and tables of a study, from the records in results/NAME.

    {{ progress() }}                         runs made, by part
    {{ claims() }}                           each claim with its verdict
    {{ means(runs("main")) }}                the lab's table of results, the best encoding first
    {{ means(runs("main"), {"64 px": average(size_accuracy(64))}) }}     the same with another column
    {{ compare(runs("main"), {"accuracy": level()}) }}                   a table of these columns alone

A value is a function of a record, as in claims. A column is made from the runs of a table and gives a cell for each name.
Where records are missing, cells are empty, and a table without runs is a note. Public names of this module and of
`study_figures` are available on the page, with `study` and those of `make_study_namespace`.
"""

import functools
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import study_figures
from markdown_text import format_table
from plots import save_page_figure
from ropewalk.lab.record import RunRecord
from ropewalk.lab.record_lines import load_records
from ropewalk.lab.report import write_report
from ropewalk.lab.result_rows import build_table_rows
from ropewalk.lab.results_table import TableColumn, format_markdown_table
from ropewalk.lab.statistics import (
    MeanEstimate,
    PairedEstimate,
    SeedResults,
    estimate_contrast,
    estimate_differences,
    estimate_means,
)
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.claims import (
    ClaimSide,
    ClaimValue,
    StudyClaim,
    estimate_difference,
    get_test_accuracy,
    judge_claims,
)
from ropewalk.lab.studies.contrasts import (
    EQUIVALENCE_LEVEL,
    ContrastVerdict,
    PairedContrast,
    judge_contrasts,
)
from ropewalk.lab.studies.equivariance import make_offset_loss, make_size_accuracy, measure_frequency_drop
from ropewalk.lab.studies.run import select_part_runs
from ropewalk.lab.studies.study import Study
from ropewalk.lab.task_types import TOP1_ACCURACY

RESULTS = Path(__file__).parent.parent / "results"
NOT_RUN = "*Not run yet.*"
CONTRAST_HEADS = [
    *("contrast", "question", "seeds", "difference, 95 %", "90 %", "other images", "p", "p, Holm", "p, sign flips"),
    *("test loss, nats", "verdict"),
]
CLAIM_HEADS = ["claim", "source", "comparison", "difference", "verdict"]

Records = Sequence[RunRecord]
Column = Callable[[Records], Callable[[str], str]]


@functools.cache
def load_results(name: str) -> tuple[RunRecord, ...]:
    """All records of results/NAME, those of parts that the study no longer has included."""
    return tuple(record for path in sorted((RESULTS / name).glob("*.jsonl")) for record in load_records(path))


def make_study_namespace(name: str, target: Path) -> dict[str, Any]:
    """The names for a study's page that is written to `target`."""
    study, records = ALL_STUDIES[name], load_results(name)

    def figure(key: str, alt: str, draw: Callable[..., Any], some: Records, /, *args: Any, **options: Any) -> str:
        return save_page_figure(target, key, alt, draw, some, *args, **options) if some else NOT_RUN

    return {
        **{key: each for key, each in {**globals(), **vars(study_figures)}.items() if key[0].islower()},
        "size_accuracy": make_size_accuracy,
        "offset_loss": make_offset_loss,
        "frequency_drop": measure_frequency_drop,
        "study": study,
        "runs": partial(select_runs, records),
        "progress": lambda *names, **options: list_progress([ALL_STUDIES[n] for n in names or [name]], records, **options),
        "claims": lambda of=name, **options: list_claims(ALL_STUDIES[of].claims, records, **options),
        "contrasts": lambda *asked, **options: list_contrasts(asked, records, **options),
        "report": partial(write_page_report, study, records, target),
        "figure": figure,
    }


# Runs


def select_runs(records: Records, *parts: str) -> list[RunRecord]:
    """The runs of these parts, in this order; an asterisk matches any ending."""
    return [record for part in parts for record in records if fnmatch(record.part or "", part)]


def exclude_names(records: Records, *names: str) -> list[RunRecord]:
    return [record for record in records if record.name not in names]


def rename_by_part(records: Records, prefix: str) -> list[RunRecord]:
    """Runs that are named by their part, without its prefix."""
    return [replace(record, name=(record.part or "").removeprefix(prefix)) for record in records]


def collect_values(records: Records, value: ClaimValue) -> dict[str, dict[int, float]]:
    """A value by name and seed, of the runs that have it."""
    values: dict[str, dict[int, float]] = {}
    for record in records:
        if (found := value(record)) is not None:
            values.setdefault(record.name or "", {})[record.config.seed] = found
    return values


def estimate_levels(records: Records, value: ClaimValue) -> dict[str, MeanEstimate]:
    """The mean of each name, with intervals from the pooled variance."""
    return estimate_means({name: list(each.values()) for name, each in collect_values(records, value).items()})


def rank_names(records: Records, value: ClaimValue = get_test_accuracy) -> list[str]:
    """The names by mean, the best first, but after those with more seeds."""
    levels = estimate_levels(records, value)
    return sorted(levels, key=lambda name: (-levels[name].seeds, -levels[name].mean))


# Values of a run


def result_metric(key: str) -> ClaimValue:
    """A share among the results, in points."""
    return lambda record: 100 * record.result[key] if key in (record.result or {}) else None


def translation_loss(by: int) -> ClaimValue:
    """Points lost when the content of images moves by so many pixels, the mean of four directions."""

    def measure(record: RunRecord) -> float | None:
        found = {tuple(row["shift"]): row["accuracy"] for row in record.probes.get("translation", [])}
        moved = [each for shift, each in found.items() if max(map(abs, shift)) == by]
        return 100 * (found[0, 0] - math.fsum(moved) / len(moved)) if moved else None

    return measure


def probe_mean(probe: str, key: str, **where: object) -> ClaimValue:
    """The mean of one entry over the rows of a probe that have these other entries."""

    def measure(record: RunRecord) -> float | None:
        rows = [row for row in record.probes.get(probe, []) if where.items() <= row.items()]
        return math.fsum(row[key] for row in rows) / len(rows) if rows else None

    return measure


def largest_frequency(record: RunRecord) -> float | None:
    """Radians across the image of the fastest channel after training."""
    rows = record.probes.get("frequencies", [])
    return max((each for row in rows for each in row["radians"]), default=None)


def epochs_to_share(share: float) -> ClaimValue:
    """Per cent of the epochs after which validation accuracy first has this share of its last value."""

    def measure(record: RunRecord) -> float | None:
        curve = record.list_metric("validation_accuracy")
        return _find_arrival(curve, share * curve[-1]) if curve else None

    return measure


def _find_arrival(curve: Sequence[float], level: float) -> float | None:
    return next((100 * (i + 1) / len(curve) for i, each in enumerate(curve) if each >= level), None)


# Columns


def level(value: ClaimValue = get_test_accuracy, digits: int = 1) -> Column:
    """The mean with its interval."""

    def make(records: Records) -> Callable[[str], str]:
        levels = estimate_levels(records, value)
        return lambda name: format_estimate(levels.get(name), digits=digits)

    return make


def average(value: ClaimValue = get_test_accuracy, digits: int = 1, *, common_seeds: bool = False) -> Column:
    """The mean over seeds, or over the seeds for which all encodings have the value."""

    def make(records: Records) -> Callable[[str], str]:
        values = collect_values(records, value)
        seeds = set.intersection(*map(set, values.values())) if values and common_seeds else None
        kept = {name: [x for seed, x in each.items() if seeds is None or seed in seeds] for name, each in values.items()}
        return lambda name: format_number(math.fsum(kept[name]) / len(kept[name]), digits) if kept.get(name) else ""

    return make


def each_seed(value: ClaimValue = get_test_accuracy) -> Column:
    def make(records: Records) -> Callable[[str], str]:
        values = collect_values(records, value)
        return lambda name: ", ".join(format_number(values[name][seed]) for seed in sorted(values.get(name, {})))

    return make


def above(baseline: str, value: ClaimValue = get_test_accuracy) -> Column:
    """The difference to a baseline, with simultaneous intervals."""

    def make(records: Records) -> Callable[[str], str]:
        values = collect_values(records, value)
        found = estimate_differences(values, baseline) if baseline in values else {}
        return lambda name: format_estimate(found.get(name), sign="+")

    return make


def paired(records: Records, part: str, base_part: str, base: str | Mapping[str, str]) -> Column:
    """The difference to a run of another part, as claims are tested; the base may depend on the name."""

    def format_pair(name: str) -> str:
        other = base if isinstance(base, str) else base.get(name, name)
        sides = ClaimSide(name, part), ClaimSide(other, base_part)
        return format_estimate(estimate_difference(*sides, get_test_accuracy, records), sign="+")

    return lambda _: format_pair


def elsewhere(records: Records, column: Column, names: Mapping[str, str] | None = None) -> Column:
    """A column of other runs, where names may differ."""
    cell = column(records)
    return lambda _: lambda name: cell((names or {}).get(name, name))


def given(cells: Mapping[str, object]) -> Column:
    return lambda _: lambda name: str(cells.get(name, ""))


def reached(metric: str, baseline: str, share: float) -> Column:
    """Per cent of validations until a metric has this share of the baseline's mean last value; if not in all runs, in how
    many."""

    def make(records: Records) -> Callable[[str], str]:
        values, runs = _collect_arrivals(records, metric, baseline, share), Counter(record.name for record in records)

        def format_cell(name: str) -> str:
            found = values.get(name, {})
            done = len(found) == runs[name]
            return format_number(math.fsum(found.values()) / len(found)) if done else f"{len(found)} of {runs[name]} runs"

        return format_cell if values else lambda _: ""

    return make


def sooner(metric: str, baseline: str, share: float) -> Column:
    """How much sooner than by the baseline the level of `reached` is reached, for names all of whose runs reach it."""

    def make(records: Records) -> Callable[[str], str]:
        runs = Counter(record.name for record in records)
        arrivals = _collect_arrivals(records, metric, baseline, share).items()
        values = {name: each for name, each in arrivals if len(each) == runs[name]}
        later = estimate_differences(values, baseline) if baseline in values else {}
        found = {name: each._replace(mean=-each.mean) for name, each in later.items()}
        return lambda name: format_estimate(found.get(name), sign="+")

    return make


def _collect_arrivals(records: Records, metric: str, baseline: str, share: float) -> dict[str, dict[int, float]]:
    ends = [curve[-1] for record in records if record.name == baseline and (curve := record.list_metric(metric))]
    wanted = share * math.fsum(ends) / len(ends) if ends else math.inf
    return collect_values(records, lambda record: _find_arrival(record.list_metric(metric), wanted))


# Tables


def means(records: Records, columns: Mapping[str, Column] | None = None, *, baseline: str | None = "learned-ape") -> str:
    """The lab's table of test accuracies, differences to a baseline with simultaneous intervals, and parameters."""
    found: dict[str, dict[int, RunRecord]] = {f"`{name}`": {} for name in rank_names(records)}
    for record in records:
        found[f"`{record.name}`"][record.config.seed] = record
    if not found:
        return NOT_RUN
    cells = {head: column(records) for head, column in (columns or {}).items()}
    more = [
        TableColumn(compute=lambda row, cell=cell: cell(row.label.strip("`")) or None, title=head)
        for head, cell in cells.items()
    ]
    rows = build_table_rows(found, TOP1_ACCURACY, baseline=baseline and f"`{baseline}`")
    return format_markdown_table(rows, more)


def compare(
    records: Records,
    columns: Mapping[str, Column],
    *,
    names: Sequence[str] = (),
    head: str = "encoding",
    by: ClaimValue = get_test_accuracy,
) -> str:
    """Encodings of some runs in order of a value, or those in `names`."""
    ranked = rank_names(records, by)
    cells = [column(records) for column in columns.values()]
    rows = [[f"`{name}`", *(cell(name) for cell in cells)] for name in names or ranked]
    return format_table([head, *columns], rows) if ranked else NOT_RUN


def compare_pairs(before: Records, after: Records, heads: Sequence[str]) -> str:
    """Runs of the same name and seed that were made twice, with the difference."""
    second = {(record.name, record.config.seed): get_test_accuracy(record) for record in after}
    rows = []
    for record in sorted(before, key=lambda record: (record.name, record.config.seed)):
        one, other = get_test_accuracy(record), second.get((record.name, record.config.seed))
        if one is not None and other is not None:
            values = f"{one:.2f}", f"{other:.2f}", f"{other - one:+.2f}"
            rows.append([f"`{record.name}`", str(record.config.seed), *values])
    return format_table(["encoding", "seed", *heads, "difference"], rows) if rows else NOT_RUN


def compare_groups(runs: Mapping[str, Records], groups: Mapping[str, Sequence[str]]) -> str:
    """The mean of the first group of names less that of the second, all names with equal weight, for each set of runs."""
    rows = []
    for title, records in runs.items():
        values = collect_values(records, get_test_accuracy)
        one, other = ([name for name in names if name in values] for names in groups.values())
        cells = [", ".join(f"`{name}`" for name in side) for side in (one, other)]
        if records:
            rows.append([title, *cells, format_estimate(estimate_group_contrast(values, one, other), sign="+")])
    return format_table(["runs", *groups, "difference"], rows) if rows else NOT_RUN


def estimate_group_contrast(values: SeedResults, one: Sequence[str], other: Sequence[str]) -> MeanEstimate | None:
    """The mean of `one` less that of `other`, all names of a group that have values with equal weight."""
    sides = [[name for name in names if name in values] for names in (one, other)]
    weights = {name: sign / len(side) for side, sign in zip(sides, (1, -1), strict=True) for name in side}
    return estimate_contrast(values, weights) if all(sides) else None


def list_progress(studies: Sequence[Study], records: Records, *, without: str = "") -> str:
    """How many runs of each part are finished, of how many; parts with this prefix are left out.

    Records of a part with other settings, data, encodings or seeds than the study's are not counted.
    """
    rows = []
    for study, name in ((each, name) for each in studies for name in each.parts):
        if not without or not name.startswith(without):
            part, request = study.parts[name], select_part_runs(study, name, RESULTS / study.name, given={})
            assert request is not None
            wanted = {(encoding, seed) for encoding in part.encodings for seed in part.seeds}
            own = (record for record in records if record.part == name and request.matches(record))
            found = {(record.name, record.config.seed) for record in own}
            rows.append([f"`{name}`", part.about, str(request.config.epochs), f"{len(wanted & found)} of {len(wanted)}"])
    return format_table(["part", "description", "epochs", "runs"], rows)


def list_claims(claims: Sequence[StudyClaim], records: Records, *, without: str | None = None) -> str:
    """Each claim with its verdict and, with `without`, the verdict if an encoding is left out of the pooled variance."""
    heads, rows = list(CLAIM_HEADS), [_format_verdict(*each) for each in judge_claims(claims, records)]
    if without is not None:
        heads.append(f"without `{without}`")
        for row, (_, found, word) in zip(rows, judge_claims(claims, exclude_names(records, without)), strict=True):
            row.append("" if found is None or found.half is None else f"± {found.half:.1f}, {word}")
    return format_table(heads, rows)


def _format_verdict(claim: StudyClaim, found: MeanEstimate | None, word: str) -> list[str]:
    verdict = "not run" if found is None else word
    text = f"{format_sides(claim)}: {claim.quantity}"
    return [claim.text, claim.source, text, format_estimate(found, sign="+"), f"**{verdict}**"]


def list_contrasts(contrasts: Sequence[PairedContrast], records: Records, *, digits: int = 2) -> str:
    """Each contrast with its intervals over seeds, p values, an interval for other images, the loss, and its verdict."""
    rows = [_format_contrast(each, digits) for each in judge_contrasts(contrasts, records)]
    return format_table(CONTRAST_HEADS, rows)


def _format_contrast(verdict: ContrastVerdict, digits: int) -> list[str]:
    contrast, found = verdict.contrast, verdict.found
    head = [f"**{contrast.name}**", f"{contrast.text} {contrast.quantity[:1].upper()}{contrast.quantity[1:]}"]
    if found is None:
        return [*head, *[""] * (len(CONTRAST_HEADS) - 3), "**not run**"]
    widths = found.half_width(), found.half_width(EQUIVALENCE_LEVEL), verdict.image_half
    halves = ["" if half is None else f"± {half:.{digits}f}" for half in widths]
    p_values = ["" if p is None else f"{p:.3f}" for p in (found.p_value, verdict.holm_p, verdict.flip_p)]
    loss = "" if verdict.loss is None else format_paired(verdict.loss, digits=4)
    mean = f"{round(found.mean, digits) + 0.0:+.{digits}f}"
    numbers = [str(found.seeds), f"{mean} {halves[0]}".strip(), *halves[1:], *p_values, loss]
    return [*head, *numbers, f"**{verdict.word}**"]


def format_paired(found: PairedEstimate, *, digits: int = 2) -> str:
    """A mean over seeds with half of its 95 % interval."""
    return format_estimate(MeanEstimate(found.mean, found.half_width(), found.seeds), sign="+", digits=digits)


def format_sides(claim: StudyClaim) -> str:
    """The encodings of a claim, with their parts if there are two, or one that is not the main one."""
    sides = [side for side in (claim.one, claim.other) if side is not None]
    parts = list(dict.fromkeys(side.part for side in sides))
    names = " less ".join(f"`{side.name}`" + f" ({side.part})" * (len(parts) > 1) for side in sides)
    return names + f" ({parts[0]})" * (len(parts) == 1 and parts[0] != "main")


def write_page_report(study: Study, records: Records, target: Path, part: str, *, baseline: str = "learned-ape") -> str:
    """Write the lab's report of a part beside the page, and return its address."""
    with tempfile.TemporaryDirectory() as scratch:
        made = write_report(select_runs(records, part), Path(scratch), question=study.question, baseline=baseline)
        shutil.copy(made, target.with_name(f"{study.name}-report.html"))
    return f"{study.name}-report.html"


def format_estimate(estimate: MeanEstimate | None, *, sign: str = "", digits: int = 1) -> str:
    """A mean with half the width of its interval."""
    if estimate is None:
        return ""
    half = "" if estimate.half is None else f" ± {estimate.half:.{digits}f}"
    return f"{round(estimate.mean, digits) + 0.0:{sign}.{digits}f}{half}"  # adding 0 turns -0 into 0


def format_number(value: float, digits: int = 1) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f}"
