"""Tables of the study of volumes, from the lines of its runs in results/volumes."""

import functools
from collections.abc import Callable, Sequence

import studied
import tables
import volumes_figures
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.claims import ClaimValue, get_test_accuracy
from studied import ResultLine

STUDY = ALL_STUDIES["volumes"]
FINE = 30
"""Voxels a side of the file's own volumes; `half` trains on those of half the side."""


found = functools.partial(studied.found, "volumes")
"""The lines of all parts."""


def finer(mode: str) -> ClaimValue:
    """The validation accuracy on volumes of 30³ of a run that was trained on others, in points."""

    def value(line: ResultLine) -> float | None:
        rows = [row for row in line["probes"].get("resolution", []) if row["mode"] == mode and "accuracy" in row]
        return next((100 * row["accuracy"] for row in rows if row["size"] == [FINE] * 3), None)

    return value


def half_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Trained at 15³: accuracy there, and on finer grids."""
    some = studied.of("half", found() if lines is None else lines)
    columns = {f"{FINE}³, {mode}": studied.probed(some, finer(mode)) for mode in ("extrapolate", "yarn", "rescale")}
    return studied.compared(some, get_test_accuracy, "test accuracy", columns | {"parameters": studied.parameters(some)})


def once_table(lines: Sequence[ResultLine] | None = None) -> str:
    """Parts with one seed: trained at 30³, and other encodings at 15³."""
    every = found() if lines is None else lines
    parts = {part: studied.levels(studied.of(part, every), get_test_accuracy) for part in ("whole", "also")}
    if not any(parts.values()):
        return studied.ABSENT
    rows = [
        [f"`{name}`", *(studied.told(parts[part].get(name)) for part in parts)] for each in parts.values() for name in each
    ]
    return tables.table(["encoding", f"trained at {FINE}³", f"others at {FINE // 2}³"], rows)


def picture(lines: Sequence[ResultLine] | None = None) -> str:
    """The figure on the page."""
    some = studied.of("half", found() if lines is None else lines)
    return studied.pictures("volumes", volumes_figures.FIGURES, some)


TABLES: dict[str, Callable[[], str]] = {
    "volumes-state": lambda: studied.state(STUDY, found()),
    "volumes-half": half_table,
    "volumes-figure": picture,
    "volumes-once": once_table,
}
