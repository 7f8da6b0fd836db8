"""Tables of the study of pedestrians, from the lines of its runs in results/pedestrians."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import pedestrians_figures
import studied
import tables
from ropewalk.lab.statistics import estimate_differences
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.claims import ClaimValue, get_test_accuracy
from studied import ResultLine

STUDY = ALL_STUDIES["pedestrians"]
SHARE = 0.9
"""Of what `learned-ape` has in the end, on the average: the level that all runs are timed to."""


found = functools.partial(studied.found, "pedestrians")
"""The lines of all parts."""


def level(lines: Sequence[ResultLine]) -> float | None:
    """The box AP on the validation set that runs are timed to."""
    last = [line["box_curve"][-1] for line in lines if line["name"] == "learned-ape" and line["box_curve"]]
    return SHARE * math.fsum(last) / len(last) if last else None


def reached(wanted: float) -> ClaimValue:
    """The share of validations after which a run first has that box AP, in per cent."""

    def value(line: ResultLine) -> float | None:
        curve = line["box_curve"]
        return next((100 * (i + 1) / len(curve) for i, each in enumerate(curve) if each >= wanted), None)

    return value


def timed(lines: Sequence[ResultLine], wanted: float) -> dict[str, Callable[[str], str]]:
    """Columns: how soon that level is reached, and how much sooner than by `learned-ape`, if all runs of both reach it."""
    runs = Counter(line["name"] for line in lines)
    values = studied.by_name(lines, reached(wanted))
    all_of = {name: each for name, each in values.items() if len(each) == runs[name]}
    later = estimate_differences(all_of, "learned-ape") if "learned-ape" in all_of else {}

    def after(name: str) -> str:
        there = len(values.get(name, {}))
        return studied.mean(all_of[name]) if name in all_of else f"{there} of {runs[name]} runs"

    def sooner(name: str) -> str:
        found = later.get(name)
        return "" if found is None else studied.told(found._replace(mean=-found.mean), sign="+")

    return {"reached after": after, "sooner": sooner}


def masks_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Boxes and masks of pedestrians on the test set, and how soon boxes are good."""
    some = studied.of("masks", found() if lines is None else lines)
    keys = {"box AP50": "box_ap50", "box AP75": "box_ap75", "mask AP": "mask_ap", "mask AP50": "mask_ap50"}
    columns = {head: studied.probed(some, studied.points(key)) for head, key in keys.items()}
    if (wanted := level(some)) is not None:
        columns |= timed(some, wanted)
    return studied.compared(some, studied.points("box_ap"), "box AP", columns)


def backbones_table(lines: Sequence[ResultLine] | None = None) -> str:
    """The classifiers that detectors begin with."""
    some = studied.of("backbones", found() if lines is None else lines)
    rows = [[f"`{name}`", studied.told(each)] for name, each in studied.levels(some, get_test_accuracy).items()]
    return tables.table(["encoding", "test accuracy"], rows) if rows else studied.ABSENT


def picture(lines: Sequence[ResultLine] | None = None) -> str:
    """The figure on the page."""
    some = studied.of("masks", found() if lines is None else lines)
    return studied.pictures("pedestrians", pedestrians_figures.FIGURES, some)


TABLES: dict[str, Callable[[], str]] = {
    "pedestrians-state": lambda: studied.state(STUDY, found()),
    "pedestrians-masks": masks_table,
    "pedestrians-figure": picture,
    "pedestrians-backbones": backbones_table,
}
