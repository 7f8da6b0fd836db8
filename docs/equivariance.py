"""Tables and figures of the study of equivariance, from the lines of its runs in results/equivariance."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tables
from ropewalk.lab.intervals import Estimate, differences, means
from ropewalk.lab.plots import THEMES
from ropewalk.lab.plots.page import legend_style, page, plain
from ropewalk.lab.plots.theme import Theme
from ropewalk.lab.studies import STUDIES
from ropewalk.lab.studies.claims import Line, Verdict, judged
from ropewalk.lab.studies.equivariance_claims import CLAIMS, accuracy, at, lost
from ropewalk.lab.studies.lines import load

RESULTS = Path(__file__).parent.parent / "results" / "equivariance"
STUDY = STUDIES["equivariance"]
PAPER = {
    "learned-ape": 64.2, "axial": 72.1, "uniform": 70.5, "spherical": 73.2, "learned-axial": 72.9, "liere-8": 73.1,
    "mixed": 74.7, "learned-spherical": 74.1,
}  # fmt: skip
"""CIFAR-100 of arXiv 2511.08368: 12 heads of 60 and 400 epochs, and LieRE with blocks as wide as a head."""
ABSENT = "*Not run yet.*"
DRAWN = ("none", "learned-ape", "axial", "mixed", "spherical", "spherical-symmetric", "liere-8", "comrope-ld-8")
LEARNED = ("learned-axial", "mixed", "learned-spherical", "comrope-ld-8")
STYLES = ("-", "--", "-.", ":")


@functools.cache
def found() -> tuple[Line, ...]:
    """The lines of all parts."""
    return tuple(line for path in sorted(RESULTS.glob("*.jsonl")) for line in load(path))


def of(part: str, lines: Sequence[Line] | None = None) -> list[Line]:
    """The lines of a part."""
    return [line for line in (found() if lines is None else lines) if line["part"] == part]


def by_name(lines: Sequence[Line], value: Callable[[Line], float | None]) -> dict[str, dict[int, float]]:
    """A number of each run, by encoding and seed; runs that have none are left out."""
    values: dict[str, dict[int, float]] = {}
    for line in lines:
        if (one := value(line)) is not None:
            values.setdefault(line["name"], {})[line["seed"]] = one
    return values


def soon(line: Line) -> float | None:
    """The share of all epochs after which the validation accuracy first has nine tenths of its last value, in per cent."""
    curve = line["curve"]
    return next((100 * (i + 1) / len(curve) for i, each in enumerate(curve) if each >= 0.9 * curve[-1]), None)


def shuffled(line: Line) -> float | None:
    """The accuracy on images whose patches have changed places, in points."""
    rows = line["probes"].get("shuffle", [])
    return 100 * rows[0]["accuracy"] if rows else None


# Tables


def state_table(lines: Sequence[Line] | None = None) -> str:
    """How many runs of each part are made, of how many; recipes are one."""
    every = found() if lines is None else lines
    rows = []
    for name, part in STUDY.parts.items():
        if not name.startswith("recipe-"):
            wanted, epochs = len(part.encodings) * len(part.seeds), STUDY.config(name, {}).epochs
            rows.append([f"`{name}`", part.about, str(epochs), f"{len(of(name, every))} of {wanted}"])
    return tables.table(["part", "what it asks", "epochs", "runs"], rows)


def main_table(lines: Sequence[Line] | None = None) -> str:
    """The most telling encodings: accuracy, what it is above learned-ape, and probes."""
    some = of("main", lines)
    if not some:
        return ABSENT
    scores = by_name(some, accuracy)
    level, above = means({name: list(each.values()) for name, each in scores.items()}), differences(scores, "learned-ape")
    probes = {"48 px": at(48), "64 px": at(64), "lost when moved": lost(4.0), "shuffled": shuffled, "soon": soon}
    probed = {head: by_name(some, value) for head, value in probes.items()}
    head = ["encoding", "the paper's", "test accuracy", "above learned-ape", *probes, "parameters"]
    rows = []
    for name in sorted(level, key=lambda name: -level[name].mean):
        cells = [_mean(probed[each].get(name, {})) for each in probes]
        own = next(line["encoding_parameters"] for line in some if line["name"] == name)
        paper = f"{PAPER[name]:.1f}" if name in PAPER else ""
        rows.append([f"`{name}`", paper, told(level[name]), told(above.get(name), sign="+"), *cells, f"{own:,}"])
    return tables.table(head, rows)


def screening_table(lines: Sequence[Line] | None = None) -> str:
    """Every encoding once."""
    some = sorted(of("screening", lines), key=lambda line: -line["test_accuracy"])
    head = ["encoding", "test accuracy", "48 px", "64 px", "lost when moved", "parameters"]
    return tables.table(
        head,
        [
            [f"`{line['name']}`", f"{accuracy(line):.1f}", *(_one(value(line)) for value in (at(48), at(64), lost(4.0))),
             f"{line['encoding_parameters']:,}"]
            for line in some
        ],
    )  # fmt: skip


def recipes_table(lines: Sequence[Line] | None = None) -> str:
    """The recipes that were tried, by the accuracy of learned-ape on images that were held out."""
    every = found() if lines is None else lines
    some = sorted(
        (each for each in every if each["part"].startswith("recipe-")), key=lambda each: -each["validation_accuracy"]
    )
    rows = [[f"`{each['part'].removeprefix('recipe-')}`", f"{100 * each['validation_accuracy']:.1f}"] for each in some]
    return tables.table(["recipe", "validation accuracy"], rows)


def claims_table(lines: Sequence[Line] | None = None) -> str:
    """Each claim with its verdict."""
    rows = [_row(verdict) for verdict in judged(CLAIMS, found() if lines is None else lines)]
    return tables.table(["claim", "whose", "difference", "of what", "verdict"], rows)


def _row(verdict: Verdict) -> list[str]:
    claim = verdict.claim
    word = "not run" if verdict.found is None else verdict.word
    return [claim.text, claim.source, told(verdict.found, sign="+"), claim.told, f"**{word}**"]


def told(estimate: Estimate | None, *, sign: str = "") -> str:
    """A mean with half its interval."""
    if estimate is None:
        return ""
    half = "" if estimate.half is None else f" ± {estimate.half:.1f}"
    return f"{estimate.mean:{sign}.1f}{half}"


def _mean(values: Mapping[int, float]) -> str:
    return _one(math.fsum(values.values()) / len(values)) if values else ""


def _one(value: float | None) -> str:
    return "" if value is None else f"{round(value, 1) + 0.0:.1f}"  # minus zero is zero


# Figures


FIGURES = {
    "sizes": "Accuracy at other image sizes, in two ways of placing the patches, for eight encodings",
    "frequencies": "The spread of learned frequencies in each layer, for four encodings",
}


def draw(folder: Path, lines: Sequence[Line] | None = None) -> None:
    """Both figures, light and dark, into the folder's images; none before the runs that they show are made."""
    some = of("main", lines)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for theme, look in THEMES.items() if some else ():
        sizes(look, some).savefig(folder / "images" / f"equivariance-sizes-{theme}.png", dpi=160)
        frequencies(look, some).savefig(folder / "images" / f"equivariance-frequencies-{theme}.png", dpi=160)


def pictures(lines: Sequence[Line] | None = None) -> str:
    """The figures on the page."""
    if not of("main", lines):
        return ABSENT
    images = [f"![{words}](../images/equivariance-{name}-{{0}}.png#only-{{0}})" for name, words in FIGURES.items()]
    return "\n\n".join("\n".join(image.format(theme) for theme in THEMES) for image in images)


def sizes(look: Theme, lines: Sequence[Line]) -> Figure:
    """Accuracy by the size of images, in both ways to place their patches."""
    below = "Validation accuracy at other sizes than that of training; bars are from the lowest to the highest seed"
    free = page(7.4, 3.4, look, title="Images of other sizes", below=below)
    both = free.figure.subplots(1, 2, sharey=True)
    for axes, mode in zip(both, ("extrapolate", "rescale"), strict=True):
        for i, name in enumerate(DRAWN):
            _sizes_of(axes, [line for line in lines if line["name"] == name], mode, name, _style(i, look))
        axes.set_title(mode, color=look.ink, fontsize=9, loc="left")
        axes.set(xlabel="pixels a side", ylabel="accuracy, %" if axes is both[0] else "")
        plain(axes, look)
    both[1].legend(loc="upper left", bbox_to_anchor=(1, 1), **legend_style(look))
    return free.figure


def _sizes_of(axes: Axes, lines: Sequence[Line], mode: str, name: str, style: dict[str, Any]) -> None:
    at_size: dict[int, list[float]] = {}
    for row in (row for line in lines for row in line["probes"].get("resolution", []) if row["mode"] == mode):
        at_size.setdefault(row["size"][0], []).append(100 * row["accuracy"])
    if not at_size:
        return
    middle = [math.fsum(each) / len(each) for each in at_size.values()]
    ends = [[m - min(each), max(each) - m] for m, each in zip(middle, at_size.values(), strict=True)]
    axes.errorbar(list(at_size), middle, yerr=list(zip(*ends, strict=True)), label=name, capsize=2, **style)


def frequencies(look: Theme, lines: Sequence[Line]) -> Figure:
    """The spread of frequencies of each layer: quarters and middle of all planes of one seed."""
    below = "Radians across the image of all planes of a layer after training: middle half and median, first seed"
    free = page(7.4, 2.6, look, title="What layers learn", below=below)
    for axes, name in zip(free.figure.subplots(1, len(LEARNED), sharey=True), LEARNED, strict=True):
        for line in (line for line in lines if line["name"] == name and line["seed"] == 0):
            _spread(axes, line["probes"].get("frequencies", []), look)
        axes.set_title(name, color=look.ink, fontsize=9, loc="left")
        axes.set(xlabel="layer", ylabel="radians" if name == LEARNED[0] else "")
        plain(axes, look)
    return free.figure


def _spread(axes: Axes, rows: Sequence[Mapping[str, Any]], look: Theme) -> None:
    ordered = [sorted(row["radians"]) for row in rows]
    quarter, half, three = ([each[int(share * (len(each) - 1))] for each in ordered] for share in (0.25, 0.5, 0.75))
    layers = [row["layer"] + 1 for row in rows]
    axes.fill_between(layers, quarter, three, color=look.of_axis("row"), alpha=0.3, linewidth=0)
    axes.plot(layers, half, color=look.of_axis("row"), linewidth=1.7)


def _style(i: int, look: Theme) -> dict[str, Any]:
    return {"color": look.of_head(i, len(DRAWN)), "linestyle": STYLES[i % len(STYLES)], "linewidth": 1.6}


TABLES: dict[str, Callable[[], str]] = {
    "equivariance-state": state_table,
    "equivariance-main": main_table,
    "equivariance-figures": pictures,
    "equivariance-screening": screening_table,
    "equivariance-recipes": recipes_table,
    "equivariance-claims": claims_table,
}
