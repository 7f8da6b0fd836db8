"""A sheet of pictures of scores, in rows, each with a scale of its own.

Attention patterns, after Figure 1A of arXiv 2511.08368.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from ropewalk.encoding import Encoding
from ropewalk.lab.figures.figure_layout import LABEL_SIZE, SMALL_LABEL_SIZE, create_figure_page, format_figure_subtitle
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme
from ropewalk.lab.inspect.attention_scores import (
    PATTERN_TEXT_LENGTH,
    AttentionPatterns,
    ScorePanel,
    compute_attention_patterns,
)
from ropewalk.lab.inspect.attention_scores import describe_attention_patterns as note_of
from ropewalk.lab.inspect.figure_grid import resolve_grid_size

PICTURE_SIZE, PICTURE_GAP, ROW_GAP, LINE_HEIGHT, HEADING_GAP, TICK_SPACE = 1.5, 0.14, 0.2, 0.24, 0.12, 0.45  # inches


class SheetRow(NamedTuple):
    """Pictures, None for an empty place, of these patterns, with words above or at the left."""

    panels: Sequence[ScorePanel | None]
    of: AttentionPatterns
    above: str = ""
    left: str = ""

    @property
    def height(self) -> float:
        """Of a picture, in inches."""
        rows, columns = self.of.size
        return min(max(PICTURE_SIZE * rows / columns, 0.3), 2.2)

    @property
    def total(self) -> float:
        """The height with the words above."""
        return self.height + LINE_HEIGHT + bool(self.above) * (LINE_HEIGHT + HEADING_GAP)


class PatternSheet:
    """A figure that is filled from the top, in inches."""

    def __init__(
        self, rows: Sequence[SheetRow], look: FigureTheme, *, split: int = 0, title: str = "", below: str = "", note: str
    ):
        self.look, self.split = look, split
        self.left = max([0.62, *[0.25 + 0.1 * len(row.left) for row in rows]])
        columns = max(len(row.panels) for row in rows)
        width = self.left + columns * (PICTURE_SIZE + PICTURE_GAP) + bool(split) * ROW_GAP
        height = sum(row.total for row in rows) + (2 * LINE_HEIGHT if split else TICK_SPACE) + LINE_HEIGHT
        free = create_figure_page(max(width, 5.0), height, look, title=title, below=below, note=note)
        self.figure = free.figure
        self.figure.set_layout_engine("none")
        self.width, self.height = self.figure.get_size_inches()
        self.y = free.top * self.height
        self._key(free.bottom * self.height + 0.3)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """A part of the figure, from its lower left corner."""
        return self.figure.add_axes((x / self.width, y / self.height, width / self.width, height / self.height))

    def words(self, x: float, y: float, text: str, *, size: float, colour: str, ha: str = "left") -> None:
        """A line of words whose middle is at this height."""
        self.figure.text(x / self.width, y / self.height, text, fontsize=size, color=colour, ha=ha, va="center")

    def x(self, column: int) -> float:
        """Where the pictures of a column begin."""
        return self.left + column * (PICTURE_SIZE + PICTURE_GAP) + (ROW_GAP if self.split and column >= self.split else 0)

    def headings(self, *texts: str, columns: int) -> None:
        """Words over the pictures before and after the split."""
        ends = (0, self.split, columns)
        for text, first, last in zip(texts, ends[:-1], ends[1:], strict=True):
            middle = (self.x(first) + self.x(last - 1) + PICTURE_SIZE) / 2
            self.words(middle, self.y - 0.06, text, size=LABEL_SIZE + 1, colour=self.look.ink, ha="center")
        self.y -= LINE_HEIGHT

    def row(self, row: SheetRow, *, last: bool) -> None:
        """Add a row; the last one of a sheet says what the axes are."""
        if row.above:
            self.y -= LINE_HEIGHT + HEADING_GAP
            self.words(self.left, self.y + LINE_HEIGHT / 3, row.above, size=LABEL_SIZE, colour=self.look.ink)
        self.y -= row.height + LINE_HEIGHT
        if row.left:
            self.words(
                self.left - 0.12, self.y + row.height / 2, row.left, size=LABEL_SIZE + 2, colour=self.look.ink, ha="right"
            )
        for column, panel in enumerate(row.panels):
            if panel is not None:
                axes = self.axes(self.x(column), self.y, PICTURE_SIZE, row.height)
                _draw_picture(axes, panel, row.of, self.look)
                _set_ticks(axes, row.of, self.look, rows=column == 0 and not row.left, columns=last and not row.left)

    def _key(self, y: float) -> None:
        axes = self.axes(self.left, y - 0.12, PICTURE_SIZE, 0.09)
        axes.imshow([[i / 63 - 1 for i in range(127)]], cmap=self.look.colours(), aspect="auto", extent=(-1, 1, 0, 1))
        axes.set_frame_on(False)
        axes.set_yticks([])
        axes.set_xticks([-1, 0, 1], ["low", "0", "high"], color=self.look.faint, fontsize=SMALL_LABEL_SIZE)
        axes.tick_params(length=0, pad=2)


def _draw_picture(axes: Axes, panel: ScorePanel, of: AttentionPatterns, look: FigureTheme) -> None:
    rows, columns = of.size
    limit = panel.scores.abs().max().item()
    smooth = "auto" if of.query is None else "bicubic"
    axes.imshow(
        panel.scores.numpy(),
        cmap=look.colours(),
        norm=Normalize(-limit or -1, limit or 1),
        interpolation=smooth,
        interpolation_stage="data",
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )
    if of.query is not None:
        halo = [withStroke(linewidth=2.5, foreground=look.paper)]
        axes.plot(*reversed(of.query), "+", color=look.ink, markersize=5, markeredgewidth=1, path_effects=halo)
    axes.set_title(f"{panel.title}, ±{limit:.2g}", color=look.faint, fontsize=SMALL_LABEL_SIZE, pad=3)
    for spine in axes.spines.values():
        spine.set(color=look.line, linewidth=0.8)


def _set_ticks(axes: Axes, of: AttentionPatterns, look: FigureTheme, *, rows: bool, columns: bool) -> None:
    for axis, n, label, shown in zip((axes.yaxis, axes.xaxis), of.size, of.axes, (rows, columns), strict=True):
        axis.set_ticks([0, n - 1] if shown else [])
        axis.set_tick_params(colors=look.faint, labelsize=SMALL_LABEL_SIZE, length=2, pad=2)
        if shown:
            axis.set_label_text(label, color=look.faint, fontsize=SMALL_LABEL_SIZE)
            axis.labelpad = -4


def draw_attention_patterns(
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
        label: compute_attention_patterns(each, size=size, groups=columns[0], heads=columns[1], seed=seed, layer=layer)
        for label, each in several.items()
    }
    look, note = get_figure_theme(theme), note_of(list(found.values()))
    if isinstance(encoding, Encoding):
        below = format_figure_subtitle(encoding, resolve_grid_size(encoding, size, places=PATTERN_TEXT_LENGTH), layer)
        return _draw_one_encoding(found[""], look, f"{encoding.name}: attention patterns", below, note)
    return _draw_several_encodings(found, look, columns, note)


def _draw_one_encoding(drawn: AttentionPatterns, look: FigureTheme, title: str, below: str, note: str) -> Figure:
    rows = [
        SheetRow(panels, drawn, above=_format_heading(drawn, panels)) for panels in (drawn.groups, drawn.heads) if panels
    ]
    sheet = PatternSheet(rows, look, title=title, below=below, note=note)
    for row in rows:
        sheet.row(row, last=row is rows[-1])
    return sheet.figure


def _draw_several_encodings(
    found: Mapping[str, AttentionPatterns], look: FigureTheme, columns: tuple[int, int], note: str
) -> Figure:
    rows = [
        SheetRow([*drawn.groups, *[None] * (columns[0] - len(drawn.groups)), *drawn.heads], drawn, left=label)
        for label, drawn in found.items()
    ]
    sheet = PatternSheet(rows, look, split=columns[0], note=note)
    sheet.headings("single groups of channels", "whole heads", columns=sum(columns))
    for row in rows:
        sheet.row(row, last=False)
        if not row.of.groups:
            middle = (sheet.x(0) + sheet.x(columns[0] - 1) + PICTURE_SIZE) / 2
            sheet.words(
                middle, sheet.y + row.height / 2, "turns no channels", size=LABEL_SIZE, colour=look.faint, ha="center"
            )
    return sheet.figure


def _format_heading(drawn: AttentionPatterns, panels: list[ScorePanel]) -> str:
    words = f"single {drawn.noun}s of head 1" if panels is drawn.groups else "whole heads"
    return f"{words}, {drawn.frame}" if drawn.frame else words
