"""Tables of the study of equivariance, from the lines of its runs in results/equivariance."""

import functools
import math
from collections.abc import Callable, Sequence

import equivariance_figures
import equivariance_layers
import equivariance_own
import equivariance_relative
import studied
import tables
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.claims import ClaimValue, get_test_accuracy
from ropewalk.lab.studies.equivariance import (
    EQUIVARIANCE_CLAIMS,
    PHOTOGRAPH_CLAIMS,
    make_offset_loss,
    make_size_accuracy,
)
from studied import ResultLine

STUDY = ALL_STUDIES["equivariance"]
PAPER = {
    "learned-ape": 64.2, "axial": 72.1, "uniform": 70.5, "spherical": 73.2, "learned-axial": 72.9, "liere-8": 73.1,
    "mixed": 74.7, "learned-spherical": 74.1,
}  # fmt: skip
"""CIFAR-100 of arXiv 2511.08368: 12 heads of 60 and 400 epochs, and LieRE with blocks as wide as a head."""
MORE = {"main": 45_000, "half": 22_500, "fifth": 9_000}
"""Images that are trained on in parts that are compared by it."""


found = functools.partial(studied.found, "equivariance")
"""The lines of all parts."""


def of(part: str, lines: Sequence[ResultLine] | None = None) -> list[ResultLine]:
    """The lines of a part."""
    return studied.of(part, found() if lines is None else lines)


def soon(line: ResultLine) -> float | None:
    """The share of all epochs after which the validation accuracy first has nine tenths of its last value, in per cent."""
    curve = line["curve"]
    return next((100 * (i + 1) / len(curve) for i, each in enumerate(curve) if each >= 0.9 * curve[-1]), None)


def shuffled(line: ResultLine) -> float | None:
    """The accuracy on images whose patches have changed places, in points."""
    rows = line["probes"].get("shuffle", [])
    return 100 * rows[0]["accuracy"] if rows else None


def state_table(lines: Sequence[ResultLine] | None = None) -> str:
    """How many runs of each part are made, photographs included."""
    every = found() if lines is None else lines
    photographs = studied.state(ALL_STUDIES["equivariance-imagenette"], every).splitlines()[2:]
    return "\n".join([studied.state(STUDY, every), *photographs])


def displaced(by: int) -> ClaimValue:
    """Points that are lost when the content of images moves by so many pixels, the four ways together."""

    def value(line: ResultLine) -> float | None:
        found = {tuple(row["shift"]): row["accuracy"] for row in line["probes"].get("translation", [])}
        moved = [each for shift, each in found.items() if max(map(abs, shift)) == by]
        return 100 * (found[0, 0] - math.fsum(moved) / len(moved)) if moved else None

    return value


def error(axis: str) -> ClaimValue:
    """The change of scores that is expected when all tokens move by a patch, the mean over layers."""

    def value(line: ResultLine) -> float | None:
        rows = [row["expected"] for row in line["probes"].get("equivariance", []) if row.get("axis") == axis]
        return math.fsum(rows) / len(rows) if rows else None

    return value


def main_table(lines: Sequence[ResultLine] | None = None) -> str:
    """The most telling encodings: accuracy, what it is above learned-ape, and the seeds that it is made of."""
    some = of("main", lines)
    seeds = {"each seed": studied.each_seed(some, get_test_accuracy)}
    paper = {"the paper's": lambda name: f"{PAPER[name]:.1f}" if name in PAPER else ""}
    return studied.compared(
        some, get_test_accuracy, "test accuracy", seeds | paper | {"parameters": studied.parameters(some)}
    )


def probes_table(lines: Sequence[ResultLine] | None = None) -> str:
    """What probes say of the same runs, in the same order."""
    some = of("main", lines)
    if not some:
        return studied.ABSENT
    columns = {
        "48 px": make_size_accuracy(48),
        "64 px": make_size_accuracy(64),
        "places moved": make_offset_loss(4.0),
        "content moved": displaced(8),
        "shuffled": shuffled,
        "90 % after": soon,
    }
    cells = [studied.probed(some, value) for value in columns.values()]
    cells += [studied.probed(some, error(axis), digits=2) for axis in ("row", "column")]
    rows = [[f"`{name}`", *(cell(name) for cell in cells)] for name in studied.levels(some, get_test_accuracy)]
    return tables.table(["encoding", *columns, "error, down", "error, sideways"], rows)


def own_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Encodings with spans of their own, beside the common one."""
    return equivariance_own.table(of("own", lines), of("main", lines))


def perturbed_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Positions that are moved in training: what it gives, and what is lost when they move in the test."""
    some, still = of("perturbed", lines), of("main", lines)
    columns = {
        "lost when moved": studied.probed(some, make_offset_loss(4.0)),
        "not moved in training": studied.probed(still, get_test_accuracy),
    }
    return studied.compared(some, get_test_accuracy, "test accuracy", columns)


def fractions_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Accuracy with all, half and a fifth of the data, about as many steps each."""
    if not of("half", lines) and not of("fifth", lines):
        return studied.ABSENT
    parts = {part: studied.levels(of(part, lines), get_test_accuracy) for part in MORE}
    head = ["encoding", *(f"{count:,} images" for count in MORE.values())]
    rows = [
        [f"`{name}`", *(studied.told(parts[part].get(name)) for part in MORE)] for name in STUDY.parts["fifth"].encodings
    ]
    return tables.table(head, rows)


def imagenette_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Photographs at 160 pixels, all seeds together."""
    some = [*of("imagenette", lines), *of("imagenette-again", lines)]
    columns = {
        f"{side} px": studied.probed(studied.shared(some, make_size_accuracy(side)), make_size_accuracy(side))
        for side in (80, 112, 128, 208, 320)
    }
    return studied.compared(some, get_test_accuracy, "test accuracy", columns)


def again_table(lines: Sequence[ResultLine] | None = None) -> str:
    """What was claimed of photographs before the last three seeds, by these alone."""
    return studied.judgements(PHOTOGRAPH_CLAIMS, found() if lines is None else lines)


def screening_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Every encoding once."""
    some = sorted(of("screening", lines), key=lambda line: -line["test_accuracy"])
    head = ["encoding", "test accuracy", "48 px", "64 px", "lost when moved", "parameters"]
    return tables.table(
        head,
        [
            [
                f"`{line['name']}`",
                f"{get_test_accuracy(studied.Line(line)):.1f}",
                *(
                    studied.one(value(studied.Line(line)))
                    for value in (make_size_accuracy(48), make_size_accuracy(64), make_offset_loss(4.0))
                ),
                f"{line['encoding_parameters']:,}",
            ]
            for line in some
        ],
    )


def recipes_table(lines: Sequence[ResultLine] | None = None) -> str:
    """The recipes that were tried, by the accuracy of learned-ape on images that were held out."""
    every = found() if lines is None else lines
    some = sorted(
        (each for each in every if each["part"].startswith("recipe-")), key=lambda each: -each["validation_accuracy"]
    )
    rows = [[f"`{each['part'].removeprefix('recipe-')}`", f"{100 * each['validation_accuracy']:.1f}"] for each in some]
    return tables.table(["recipe", "validation accuracy"], rows)


def kernels_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Runs that were trained twice: with cuDNN's attention, in the part `cudnn`, and with ours, in the main one."""
    before, after = (
        {(line["name"], line["seed"]): 100 * line["test_accuracy"] for line in of(part, lines)} for part in ("cudnn", "main")
    )
    rows = [
        [f"`{name}`", str(seed), f"{first:.2f}", f"{after[name, seed]:.2f}", f"{after[name, seed] - first:+.2f}"]
        for (name, seed), first in sorted(before.items())
        if (name, seed) in after
    ]
    return tables.table(["encoding", "seed", "cuDNN's", "ours", "difference"], rows) if rows else studied.ABSENT


def claims_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Each claim with its verdict."""
    return studied.claims(EQUIVARIANCE_CLAIMS, found() if lines is None else lines, without="uniform")


def relative_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Relative rotations against the others, on images of both kinds."""
    small, first, again = (of(part, lines) for part in ("main", "imagenette", "imagenette-again"))
    steady = [line for line in small if line["name"] != "uniform"]
    groups = {"CIFAR-100": small, "CIFAR-100, without `uniform`": steady}
    return equivariance_relative.table(groups | {"photographs": [*first, *again], "photographs, seeds 3 to 5": again})


def layers_table(lines: Sequence[ResultLine] | None = None) -> str:
    """How much faster the first layers turn than the last, before and after training."""
    return equivariance_layers.table(of("main", lines))


def pictures(lines: Sequence[ResultLine] | None = None) -> str:
    """The figures on the page."""
    return studied.pictures("equivariance", equivariance_figures.FIGURES, of("main", lines))


TABLES: dict[str, Callable[[], str]] = {
    "equivariance-state": state_table,
    "equivariance-main": main_table,
    "equivariance-probes": probes_table,
    "equivariance-figures": pictures,
    "equivariance-own": own_table,
    "equivariance-perturbed": perturbed_table,
    "equivariance-fractions": fractions_table,
    "equivariance-imagenette": imagenette_table,
    "equivariance-again": again_table,
    "equivariance-screening": screening_table,
    "equivariance-recipes": recipes_table,
    "equivariance-claims": claims_table,
    "equivariance-kernels": kernels_table,
    "equivariance-layers": layers_table,
    "equivariance-relative": relative_table,
}
