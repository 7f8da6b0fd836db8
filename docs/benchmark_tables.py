"""Tables of what scripts and `ropewalk bench` measured, read from results/ when a page is rendered."""

import itertools
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markdown_text import escape_prose, format_table
from ropewalk.lab.bench.suites import explain_missing_figures
from ropewalk.lab.bench.timing import BenchRow
from ropewalk.ops.attend import FEW

RESULTS = Path(__file__).parent.parent / "results"
KERNELS = "kernels-h200.json"
# Columns of `ropewalk bench`: their heads, and the formats of their values.
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
MODES = ("eager", "compiled")


@cache
def load_results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def describe_machine(name: str = KERNELS, verb: str = "Measured") -> str:
    """Device, date and versions of a measurement."""
    found = load_results(name)
    versions = ", ".join(f"{library} {version}" for library, version in found["versions"].items())
    whole = "" if found.get("finished", True) else " The run was stopped before its end: rows are missing."
    return f"{verb} on one {found['machine']['device']}, {found['date']}, with {versions}.{whole}"


def compare_suite(suite: str, label: str, name: str = KERNELS) -> str:
    """A table of a suite's rows for each value of a label."""
    rows = [row for row in load_results(name)["rows"] if row.get("suite", suite) == suite]
    groups = {row[label]: [each for each in rows if each[label] == row[label]] for row in rows}
    return "\n\n".join(f"**{value}**\n\n{_format_bench_rows(group)}" for value, group in groups.items())


def _format_bench_rows(rows: Sequence[BenchRow]) -> str:
    """Columns that any row has; a row that was not measured has the reason."""
    keys = [key for key in COLUMNS if any(key in row for row in rows)]
    return format_table(["", *(COLUMNS[key][0] for key in keys)], [[row["name"], *_format_cells(row, keys)] for row in rows])


def _format_cells(row: BenchRow, keys: Sequence[str]) -> list[str]:
    cells = [COLUMNS[key][1].format(row[key]) if key in row else "" for key in keys]
    reason = explain_missing_figures(row)
    return [escape_prose(reason), *cells[1:]] if reason and cells else cells


def compare_dense_sizes(name: str = "dense-sizes-h200.json") -> str:
    """A training step of each model in both modes: its time, over that of the same library's plain model, and memory."""
    found = load_results(name)
    rows = {(row["name"], row["mode"]): row for row in found["rows"]}
    head = ["", *(f"{mode}, {what}" for mode in MODES for what in ("ms", "× plain", "GB"))]
    lines = []
    for model in dict.fromkeys(model for model, _ in rows):
        own = [rows[model, mode] for mode in MODES]
        over = [row.get("over timm, plain", row["over none"]) for row in own]
        cells = [(f"{row['ms']:.1f}", f"{ratio:.2f}", f"{row['GB']:.1f}") for row, ratio in zip(own, over, strict=True)]
        lines.append([model, *(cell for each in cells for cell in each)])
    return f"{format_table(head, lines)}\n\n{describe_machine(name)}"


def compare_folded() -> str:
    """Inference of commuting encodings as they are and folded, over mixed RoPE, on each machine where it was measured."""
    parts = []
    for path in sorted(RESULTS.glob("folded-inference-*.json")):
        found = load_results(path.name)
        head = ["inference over that of mixed RoPE", "as it is", "folded"]
        cells = [
            [f"{row[f'{how} over mixed']:.3f} ± {row[f'{how} spread']:.3f}" for how in head[1:]] for row in found["rows"]
        ]
        table = format_table(head, [[row["name"], *own] for row, own in zip(found["rows"], cells, strict=True)])
        parts.append(f"{table}\n\nA ViT-S, {found['batch']} images of 224 px. {describe_machine(path.name)}")
    return "\n\n".join(parts)


def compare_hosts(name: str = "hosts-h200.json") -> str:
    """Models of other libraries with their own rotation and with ours."""
    head = ["", "", "theirs, ms", "ours, ms", "ours over theirs", "half of the rounds"]
    rows = [
        [row["what"], row["mode"], *(f"{row[key]:.3g}" for key in ("host ms", "ours ms")), f"{row['ours over host']:.2f}",
         f"{row['ratio, first quarter']:.2f} to {row['ratio, third quarter']:.2f}"]
        for row in load_results(name)["rows"]
    ]  # fmt: skip
    return f"{format_table(head, rows)}\n\n{describe_machine(name)}"


def compare_attention(name: str = "attention-kernels-h200.json") -> str:
    """Attention kernels, forward and backward, and over ropewalk's, up to the number of tokens that it is used for."""
    timed = [row for row in load_results(name)["rows"] if row["shape"][2] <= FEW and "ms" in row]
    base = {row["what"]: row for row in timed if row["kernel"] == "ropewalk"}
    head = ["", "samples × heads × channels", "", "ms", "ms back", "over ropewalk's", "back", "one call, both ways, ms"]
    rows = [
        [row["what"].split(",")[0], "{} × {} × {}".format(*row["shape"][:2], row["shape"][3]), row["kernel"],
         *(f"{row[key]:.3g}" for key in ("ms", "back ms")),
         *(f"{row[key] / base[row['what']][key]:.1f}" for key in ("ms", "back ms")),
         f"{row['eager ms']:.2f}" if "eager ms" in row else ""]
        for row in timed if row["what"] in base
    ]  # fmt: skip
    return f"{format_table(head, rows)}\n\n{describe_machine(name)}"


def list_timm_hosts(name: str = "timm-hosts.json") -> str:
    """Hosts of timm by class: how many take an encoding, and why others are refused."""
    found = load_results(name)
    rows = []
    by_class = sorted(found["entries"], key=lambda row: (row.get("class", ""), row["name"]))
    for kind, group in itertools.groupby(by_class, key=lambda row: row.get("class", "")):
        entries = list(group)
        working = [row for row in entries if row["status"] == "works"]
        reasons = dict.fromkeys(escape_prose(_shorten_reason(row["reason"])) for row in entries if row["reason"])
        example = (working or entries)[0]["name"]
        rows.append((f"`{kind}`", f"`{example}`", f"{len(working)} of {len(entries)}", "; ".join(reasons)))
    return format_table(["class", "for example", "take an encoding", "the others"], rows)


def count_timm_hosts(name: str = "timm-hosts.json") -> str:
    """The sum of them in a sentence."""
    found = load_results(name)
    working = sum(row["status"] == "works" for row in found["entries"])
    whole = sum(row.get("judged") == "whole" for row in found["entries"])
    return (
        f"Of {found['hosts']} architectures of timm {found['timm']} with attention, **{working} take an encoding** "
        f"({found['date']}; {whole} were run with weights, one of each structure, the others on the meta device)."
    )


def _shorten_reason(reason: str) -> str:
    """What stands in parentheses, where a refusal lists the kinds of attention; else its beginning."""
    inside = re.search(r"positions \((.+)\): an encoding", reason)
    return inside[1] if inside else reason[:160]
