"""What pages of studies have in common: lines of runs, and numbers of them in words."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tables
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.record import RunRecord, load_records
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means
from ropewalk.lab.studies.claims import ClaimValue, StudyClaim, judge_claims
from ropewalk.lab.studies.study import Study

RESULTS = Path(__file__).parent.parent / "results"
ABSENT = "*Not run yet.*"
JUDGED = ["claim", "whose", "of what", "difference", "verdict"]


ResultLine = Mapping[str, Any]


class Line(dict[str, Any]):
    """The fields of a record that tables and figures use, by name, and as attributes for the values of claims."""

    def __getattr__(self, name: str) -> Any:
        return {"result": self, "config": SimpleNamespace(seed=self["seed"])}.get(name) or self[name]


@functools.cache
def found(folder: str) -> tuple[ResultLine, ...]:
    """The records of all parts of a study."""
    return tuple(_line(record) for path in sorted((RESULTS / folder).glob("*.jsonl")) for record in load_records(path))


def _line(record: RunRecord) -> Line:
    curves = {"curve": "validation_accuracy", "box_curve": "validation_box_ap"}
    return Line(
        **{name: getattr(record, name) for name in ("part", "name", "probes")},
        **{"seed": record.config.seed, "epochs": record.config.epochs, "settings": record.config.document()},
        **{name: record.list_metric(metric) for name, metric in curves.items()},
        **(record.result or {}),
    )


def of(part: str, lines: Sequence[ResultLine]) -> list[ResultLine]:
    """The lines of a part."""
    return [line for line in lines if line["part"] == part]


def points(key: str) -> ClaimValue:
    """A number of the test set, in points."""
    return lambda line: 100 * line[f"test_{key}"] if f"test_{key}" in line else None


def by_name(lines: Sequence[ResultLine], value: ClaimValue) -> dict[str, dict[int, float]]:
    """A number of each run, by encoding and seed; runs that have none are left out."""
    values: dict[str, dict[int, float]] = {}
    for line in lines:
        if (one := value(Line(line))) is not None:
            values.setdefault(line["name"], {})[line["seed"]] = one
    return values


def levels(lines: Sequence[ResultLine], value: ClaimValue) -> dict[str, MeanEstimate]:
    """The mean of each encoding, with an interval from what seeds do to all of them: the best first, but after those that
    have more seeds."""
    level = estimate_means({name: list(each.values()) for name, each in by_name(lines, value).items()})
    return dict(sorted(level.items(), key=lambda item: (-item[1].seeds, -item[1].mean)))


def above(lines: Sequence[ResultLine], value: ClaimValue, baseline: str) -> dict[str, MeanEstimate]:
    """How much each encoding has above the baseline, seed by seed."""
    values = by_name(lines, value)
    return estimate_differences(values, baseline) if baseline in values else {}


# In words


def told(estimate: MeanEstimate | None, *, sign: str = "", digits: int = 1) -> str:
    """A mean with half its interval."""
    if estimate is None:
        return ""
    half = "" if estimate.half is None else f" ± {estimate.half:.{digits}f}"
    return f"{round(estimate.mean, digits) + 0.0:{sign}.{digits}f}{half}"  # minus zero is zero


def mean(values: Mapping[int, float], digits: int = 1) -> str:
    """Over seeds."""
    return one(math.fsum(values.values()) / len(values), digits) if values else ""


def one(value: float | None, digits: int = 1) -> str:
    """A number, or nothing."""
    return "" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # minus zero is zero


def state(study: Study, lines: Sequence[ResultLine], *, but: str = "recipe-") -> str:
    """How many runs of each part are made, of how many; parts of this beginning are left out."""
    rows = []
    for name, part in study.parts.items():
        if not name.startswith(but):
            wanted, epochs = len(part.encodings) * len(part.seeds), study.config(name, {}).epochs
            rows.append([f"`{name}`", part.about, str(epochs), f"{len(of(name, lines))} of {wanted}"])
    return tables.table(["part", "what it asks", "epochs", "runs"], rows)


def judgements(said: Sequence[StudyClaim], lines: Sequence[ResultLine]) -> str:
    """Each claim with its verdict."""
    rows = [_judgement(*each) for each in judge_claims(said, map(Line, lines))]
    return tables.table(JUDGED, rows)


def claims(said: Sequence[StudyClaim], lines: Sequence[ResultLine], *, without: str) -> str:
    """Each claim with its verdict, and with the one where one encoding has no part in the variance of seeds."""
    rows = []
    fewer = judge_claims(said, [Line(line) for line in lines if line["name"] != without])
    for each, (_, other, second) in zip(judge_claims(said, map(Line, lines)), fewer, strict=True):
        half = "" if other is None or other.half is None else f"± {other.half:.1f}, {second}"
        rows.append([*_judgement(*each), half])
    return tables.table([*JUDGED, f"without `{without}`"], rows)


def _judgement(claim: StudyClaim, difference: MeanEstimate | None, word: str) -> list[str]:
    verdict = "not run" if difference is None else word
    return [claim.text, claim.source, f"{sides(claim)}: {claim.quantity}", told(difference, sign="+"), f"**{verdict}**"]


def sides(claim: StudyClaim) -> str:
    """What is compared with what, and in which parts if they are two; in which one if it is not the main one."""
    there = [side for side in (claim.one, claim.other) if side is not None]
    parts = list(dict.fromkeys(side.part for side in there))
    names = " less ".join(f"`{side.name}`" + f" ({side.part})" * (len(parts) > 1) for side in there)
    return names + f" ({parts[0]})" * (len(parts) == 1 and parts[0] != "main")


def compared(lines: Sequence[ResultLine], value: ClaimValue, head: str, columns: Mapping[str, Callable[[str], str]]) -> str:
    """The encodings of a part, the best first: a number with its interval, what it is above learned-ape, and more."""
    if not lines:
        return ABSENT
    level, more = levels(lines, value), above(lines, value, "learned-ape")
    rows = [
        [f"`{name}`", told(each), told(more.get(name), sign="+"), *(cell(name) for cell in columns.values())]
        for name, each in level.items()
    ]
    return tables.table(["encoding", head, "above learned-ape", *columns], rows)


def each_seed(lines: Sequence[ResultLine], value: ClaimValue) -> Callable[[str], str]:
    """A column: what each seed has, in their order."""
    values = by_name(lines, value)
    return lambda name: ", ".join(one(values[name][seed]) for seed in sorted(values.get(name, {})))


def probed(lines: Sequence[ResultLine], value: ClaimValue, *, digits: int = 1) -> Callable[[str], str]:
    """A column: the mean over seeds of another number of each run."""
    values = by_name(lines, value)
    return lambda name: mean(values.get(name, {}), digits)


def shared(lines: Sequence[ResultLine], value: ClaimValue) -> list[ResultLine]:
    """Lines of the seeds for which all encodings have this number."""
    seeds = [set(each) for each in by_name(lines, value).values()]
    return [line for line in lines if seeds and line["seed"] in set.intersection(*seeds)]


def parameters(lines: Sequence[ResultLine]) -> Callable[[str], str]:
    """A column: those of the encoding alone."""
    own = {line["name"]: line["encoding_parameters"] for line in lines}
    return lambda name: f"{own[name]:,}"


def pictures(study: str, words: Mapping[str, str], lines: Sequence[ResultLine]) -> str:
    """Figures on a page in docs/studies, one for each theme, if there are lines that they show."""
    if not lines:
        return ABSENT
    images = [f"![{alt}](../images/{study}-{name}-{{0}}.png#only-{{0}})" for name, alt in words.items()]
    return "\n\n".join("\n".join(image.format(theme) for theme in FIGURE_THEMES) for image in images)
