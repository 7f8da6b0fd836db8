"""The table of what encodings cost at 1024 pixels, from what `benchmarks/dense_sizes.py` measured."""

from collections.abc import Callable
from typing import Any

import speed
import tables

MEASURED = speed.RESULTS.with_name("dense-sizes-h200.json")
MODES = ("eager", "compiled")


def dense() -> str:
    """A training step of each model in both modes: its time, over that of the same library's plain model, and memory."""
    found = speed.document(MEASURED)
    if found is None:
        return speed.ABSENT.format(name=MEASURED.name)
    rows = {(row["name"], row["mode"]): row for row in found["rows"]}
    head = ["", *(f"{mode}, {what}" for mode in MODES for what in ("ms", "× plain", "GB"))]
    names = dict.fromkeys(name for name, _ in rows)
    return f"{tables.table(head, [[name, *_cells(rows, name)] for name in names])}\n\n{speed.where(found)}"


def _cells(rows: dict[tuple[str, str], dict[str, Any]], name: str) -> list[str]:
    own = [rows[name, mode] for mode in MODES]
    over = [row.get("over timm, plain", row["over none"]) for row in own]
    cells = [(f"{row['ms']:.1f}", f"{ratio:.2f}", f"{row['GB']:.1f}") for row, ratio in zip(own, over, strict=True)]
    return [cell for each in cells for cell in each]


TABLES: dict[str, Callable[[], str]] = {"dense-sizes": dense}
