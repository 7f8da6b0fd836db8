"""A table of encodings in plain words, for terminals of any width."""

import textwrap
from typing import Any

HEADS = {
    "name": "name",
    "class": "class",
    "axes": "axes",
    "relative": "relative",
    "oblique": "oblique",
    "needs": "needs learning",
    "parameters": "ViT-S parameters",
    "acts_on": "acts on",
    "reach": "reach",
    "paper": "paper",
    "variants": "variants",
}
BELOW = ("class", "paper", "variants")  # what goes to a second line where there is no room


def listing(rows: list[dict[str, Any]], *, width: int) -> list[str]:
    """The table in lines no wider than `width`, or than its columns need: a line for each encoding if they fit, else two."""
    cells = [_cells(row) for row in rows]
    wide = _columns([HEADS, *cells], list(HEADS), between=2)
    if max(map(len, wide)) <= width:
        return wide
    stacked = {name: words.split() for name, words in HEADS.items()}
    top = {name: words[0] if len(words) > 1 and name != "acts_on" else "" for name, words in stacked.items()}
    bottom = {name: words[-1] if top[name] else HEADS[name] for name, words in stacked.items()}
    short = [name for name in HEADS if name not in BELOW]
    lines = _columns([top, bottom, *cells], short, between=1 if width < 90 else 2)
    found = lines[:2]
    for line, cell in zip(lines[2:], cells, strict=True):
        rest = f"{cell['class']}, {cell['paper']}: {cell['variants']}"
        found += [line, *textwrap.wrap(rest, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)]
    return found


def parameters(row: dict[str, Any]) -> str:
    """How many numbers it learns in a ViT-S, fixed or learned."""
    return " or ".join(f"{count:,}" for count in row["parameters"].values() if count is not None)


def _columns(rows: list[dict[str, str]], names: list[str], *, between: int) -> list[str]:
    widths = {name: max(len(row[name]) for row in rows) for name in names}
    return [(" " * between).join(row[name].ljust(widths[name]) for name in names).rstrip() for row in rows]


def _cells(row: dict[str, Any]) -> dict[str, str]:
    default, most = row["axes"]["default"], row["axes"]["most"]
    same = len(set(row["relative"])) == 1
    return {
        "name": row["name"],
        "class": row["class"],
        "axes": f"{default} (any)" if most is None else f"{default} (to {most})" if most > default else str(default),
        "relative": ", ".join(map(_yes, row["relative"][:1] if same else row["relative"])),
        "oblique": _yes(row["oblique"]),
        "needs": _yes(row["needs_learning"]),
        "parameters": parameters(row),
        "acts_on": row["acts_on"],
        "reach": "any" if row["reach"] is None else f"{row['reach']:.5g}",
        "paper": row["paper"].removeprefix("arXiv:"),
        "variants": ", ".join(row["variants"]),
    }


def _yes(value: bool) -> str:
    return "yes" if value else "no"
