"""Attention patterns, after Figure 1A of arXiv 2511.08368."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ropewalk.encoding import Encoding
from ropewalk.lab.patterns import PLACES, Panel, Patterns, patterns
from ropewalk.lab.patterns import note as note_of
from ropewalk.lab.places import size_of
from ropewalk.lab.plots.page import LABEL, subtitle
from ropewalk.lab.plots.sheet import PICTURE, Row, Sheet
from ropewalk.lab.plots.theme import Theme, look_of


def attention_patterns(
    encoding: Encoding | Mapping[str, Encoding],
    *,
    theme: str = "light",
    size: Sequence[int] | None = None,
    groups: int | None = None,
    heads: int | None = None,
    seed: int = 0,
    layer: int = 0,
) -> Figure:
    """Scores of a random query in the middle of an image with a random key, which visits every place of the image.

    Of one encoding: single groups of channels (pairs, triplets, blocks) of the first head, and whole heads. Of several, by
    label: a row for each. With one axis: a query at every place with a key at every place. Each picture has a scale of
    its own, symmetric about zero. `size` is the image in patches.
    """
    several = {"": encoding} if isinstance(encoding, Encoding) else encoding
    if not several:
        raise ValueError("attention patterns want at least one encoding, got none")
    columns = (4, 4) if isinstance(encoding, Encoding) else (3, 2)
    columns = (columns[0] if groups is None else groups, columns[1] if heads is None else heads)
    found = {
        label: patterns(each, size=size, groups=columns[0], heads=columns[1], seed=seed, layer=layer)
        for label, each in several.items()
    }
    look, note = look_of(theme), note_of(list(found.values()))
    if isinstance(encoding, Encoding):
        below = subtitle(encoding, size_of(encoding, size, places=PLACES), layer)
        return _one(found[""], look, f"{encoding.name}: attention patterns", below, note)
    return _several(found, look, columns, note)


def _one(drawn: Patterns, look: Theme, title: str, below: str, note: str) -> Figure:
    rows = [Row(panels, drawn, above=_heading(drawn, panels)) for panels in (drawn.groups, drawn.heads) if panels]
    sheet = Sheet(rows, look, title=title, below=below, note=note)
    for row in rows:
        sheet.row(row, last=row is rows[-1])
    return sheet.figure


def _several(found: Mapping[str, Patterns], look: Theme, columns: tuple[int, int], note: str) -> Figure:
    rows = [
        Row([*drawn.groups, *[None] * (columns[0] - len(drawn.groups)), *drawn.heads], drawn, left=label)
        for label, drawn in found.items()
    ]
    sheet = Sheet(rows, look, split=columns[0], note=note)
    sheet.headings("single groups of channels", "whole heads", columns=sum(columns))
    for row in rows:
        sheet.row(row, last=False)
        if not row.of.groups:
            middle = (sheet.x(0) + sheet.x(columns[0] - 1) + PICTURE) / 2
            sheet.words(middle, sheet.y + row.height / 2, "turns no channels", size=LABEL, colour=look.faint, ha="center")
    return sheet.figure


def _heading(drawn: Patterns, panels: list[Panel]) -> str:
    words = f"single {drawn.noun}s of head 1" if panels is drawn.groups else "whole heads"
    return f"{words}, {drawn.frame}" if drawn.frame else words
