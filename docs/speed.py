"""The figures of the page on speed: all of them are read, when the page is written, from what `ropewalk bench` measured."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aligned
import tables
from ropewalk.lab.bench.suites import explain_missing_figures
from ropewalk.lab.bench.timing import BenchRow
from ropewalk.lab.figures.cost import draw_step_cost
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.ops.attend import FEW

RESULTS = Path(__file__).parent.parent / "results" / "kernels-h200.json"
CPU = RESULTS.with_name("rotate-cpu.json")
HOSTS = RESULTS.with_name("hosts-h200.json")
ATTENTION = RESULTS.with_name("attention-kernels-h200.json")
ABSENT = "*No figures are here yet: `results/{name}` is missing, or has none of these rows.*"
# What a column of the page is called, and how its figures are written.
COLUMNS = {
    "ms": ("ms", "{:.3g}"),
    "back ms": ("ms back", "{:.3g}"),
    "GB/s": ("GB/s", "{:,.0f}"),
    "of copy": ("of the copy", "{:.2f}"),
    "eager ms": ("Python, ms", "{:.3g}"),
    "eager back ms": ("Python back, ms", "{:.3g}"),
    "with its code": ("with its code, ms", "{:.3g}"),
    "code ms": ("its code, ms", "{:.3g}"),
    "peak GB": ("peak, GB", "{:.2f}"),
    "over fastest peer": ("over the fastest peer", "{:.2f}"),
    "train ms": ("step, ms", "{:.1f}"),
    "train ms ratio": ("× none", "{:.3f}"),
    "train spread": ("±", "{:.3f}"),
    "infer ms": ("inference, ms", "{:.2f}"),
    "infer ms ratio": ("× none", "{:.3f}"),
    "infer spread": ("±", "{:.3f}"),
    "train GB": ("peak, GB", "{:.2f}"),
    "train GB ratio": ("× none", "{:.3f}"),
}


def document(path: Path | None = None) -> dict[str, Any] | None:
    """What was measured, if it is there."""
    path = path or RESULTS
    return json.loads(path.read_text()) if path.exists() else None


def rows(**labels: str) -> list[BenchRow]:
    """The rows with these labels."""
    found = document()
    return [row for row in found["rows"] if labels.items() <= row.items()] if found else []


def machine() -> str:
    """On what, with what and when it was measured."""
    return where(document())


def where(found: dict[str, Any] | None) -> str:
    """On what, with what and when a document was measured."""
    if found is None:
        return _absent()
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    whole = "" if found.get("finished", True) else " The run was stopped before its end: rows are missing."
    return f"Measured on one {found['machine']['device']}, {found['date']}, with {versions}.{whole}"


def ops() -> str:
    """Turning q and k, and exponentials: a table for each shape."""
    return _by("shape", rows(suite="ops"))


def lengths() -> str:
    """Decoding one token, and long sequences."""
    return _by("shape", rows(suite="lengths"))


def steps() -> str:
    """The model with each encoding, a table for each mode, after the figure."""
    found = rows(suite="steps")
    if not any("train ms ratio" in row for row in found):
        return _by("mode", found)
    alt = "A dot for each encoding and mode: time of a training step and of inference over that of no encoding"
    pictures = [f"![{alt}](images/cost-{theme}.png#only-{theme})" for theme in FIGURE_THEMES]
    return "\n".join([*pictures, "", _by("mode", found)])


def cpu() -> str:
    """Turning q and k on a CPU, which is another machine."""
    found = document(CPU)
    return f"{where(found)}\n\n{_by('shape', found['rows'])}" if found else _absent()


def folded() -> str:
    """Inference of commuting encodings as they are and folded, over mixed RoPE, on each machine where it was measured."""
    parts = []
    for path in sorted(RESULTS.parent.glob("folded-inference-*.json")):
        found = document(path)
        head = ["inference over that of mixed RoPE", "as it is", "folded"]
        cells = [
            [f"{row[f'{how} over mixed']:.3f} ± {row[f'{how} spread']:.3f}" for how in head[1:]] for row in found["rows"]
        ]
        lines = [[row["name"], *own] for row, own in zip(found["rows"], cells, strict=True)]
        parts.append(f"{tables.table(head, lines)}\n\nA ViT-S, {found['batch']} images of 224 px. {where(found)}")
    return "\n\n".join(parts) or ABSENT.format(name="folded-inference-*.json")


def hosts() -> str:
    """Models of others with their own rotation and with ours."""
    found = document(HOSTS)
    if found is None:
        return ABSENT.format(name=HOSTS.name)
    head = ["", "", "theirs, ms", "ours, ms", "ours over theirs", "half of the rounds"]
    lines = [
        [row["what"], row["mode"], *(f"{row[key]:.3g}" for key in ("host ms", "ours ms")), f"{row['ours over host']:.2f}",
         f"{row['ratio, first quarter']:.2f} to {row['ratio, third quarter']:.2f}"]
        for row in found["rows"]
    ]  # fmt: skip
    return f"{tables.table(head, lines)}\n\n{where(found)}"


def attention() -> str:
    """Attention's kernels there and back, and over ropewalk's, with as many tokens as it is taken for."""
    found = document(ATTENTION)
    if found is None:
        return ABSENT.format(name=ATTENTION.name)
    timed = [row for row in found["rows"] if row["shape"][2] <= FEW and "ms" in row]
    base = {row["what"]: row for row in timed if row["kernel"] == "ropewalk"}
    head = ["", "samples × heads × channels", "", "ms", "ms back", "over ropewalk's", "back", "one call, both ways, ms"]
    lines = [
        [row["what"].split(",")[0], "{} × {} × {}".format(*row["shape"][:2], row["shape"][3]), row["kernel"],
         *(f"{row[key]:.3g}" for key in ("ms", "back ms")),
         *(f"{row[key] / base[row['what']][key]:.1f}" for key in ("ms", "back ms")),
         f"{row['eager ms']:.2f}" if "eager ms" in row else ""]
        for row in timed if row["what"] in base
    ]  # fmt: skip
    return f"{tables.table(head, lines)}\n\n{where(found)}"


TABLES: dict[str, Callable[[], str]] = {
    "speed-machine": machine,
    "speed-ops": ops,
    "speed-lengths": lengths,
    "speed-steps": steps,
    "speed-cpu": cpu,
    "speed-hosts": hosts,
    "speed-attention": attention,
    "folded": folded,
}


def draw(folder: Path) -> None:
    """The figure of the steps, light and dark, into the folder's images; nothing where none were measured."""
    found = document()
    if found is None or not any("train ms ratio" in row for row in found["rows"]):
        return
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for theme in FIGURE_THEMES:
        draw_step_cost(found, theme=theme).savefig(folder / "images" / f"cost-{theme}.png", dpi=160)


def _by(label: str, found: Sequence[BenchRow]) -> str:
    """A table for each value of a label, with that value above it."""
    values = dict.fromkeys(row[label] for row in found)
    parts = [f"**{value}**\n\n{_table([row for row in found if row[label] == value])}" for value in values]
    return "\n\n".join(parts) or _absent()


def _table(found: Sequence[BenchRow]) -> str:
    """Names and figures, in the order of `COLUMNS`; a row without figures says why."""
    there = [key for key in COLUMNS if any(key in row for row in found)]
    head = ["", *(COLUMNS[key][0] for key in there)]
    return tables.table(head, [[row["name"], *_cells(row, there)] for row in found])


def _cells(row: BenchRow, there: Sequence[str]) -> list[str]:
    cells = [COLUMNS[key][1].format(row[key]) if key in row else "" for key in there]
    return [aligned.prose(explain_missing_figures(row)), *cells[1:]] if explain_missing_figures(row) and cells else cells


def _absent() -> str:
    return ABSENT.format(name=RESULTS.name)
